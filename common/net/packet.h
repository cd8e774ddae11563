// SPDX-License-Identifier: Apache-2.0
// Writing and reading the fields of one packet between two programs of the same build on machines
// of one kind (holder and agent proper, shim and step controller), so numbers travel in host byte
// order; every read is checked against the length, so that a damaged packet is an error and never a
// wild read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hpctl {

class PacketWriter {
 public:
  template <typename T>
  PacketWriter& number(T value) {
    static_assert(std::is_integral_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  // u32 length, then the bytes.
  PacketWriter& text(std::string_view value);
  // u32 count, then each text.
  PacketWriter& texts(const std::vector<std::string>& values);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After a read past the end, every further read gives zero or "" and finished() is false.
class PacketReader {
 public:
  explicit PacketReader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  T number() {
    static_assert(std::is_integral_v<T>);
    T value{};
    copy_out(&value, sizeof(value));
    return value;
  }
  template <typename T>
  void into(T& value) {
    value = number<T>();
  }
  // An enumeration, as its number; one outside `first` to `last` counts as missing.
  template <typename E>
  void into(E& value, E first, E last) {
    const auto read = static_cast<E>(number<std::underlying_type_t<E>>());
    ok_ = ok_ && read >= first && read <= last;
    value = ok_ ? read : first;
  }
  std::string text();
  std::vector<std::string> texts();
  // Nothing is left to read, or something was missing.
  bool at_end() const { return !ok_ || rest_.empty(); }
  // True when everything was read and nothing was missing.
  bool finished() const { return ok_ && rest_.empty(); }

 private:
  void copy_out(void* to, size_t size);

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace hpctl
