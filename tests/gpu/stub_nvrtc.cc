// SPDX-License-Identifier: Apache-2.0
// NVRTC without a compiler: it looks whether every file that the program includes was given, and
// gives what the stub of the driver takes for code. Knows sm_80, sm_86 and sm_90.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <regex>
#include <string>

namespace {

constexpr int kInvalidOption = 5;
constexpr int kCompilation = 6;
constexpr char kCode[] = "stub code";

struct Program {
  std::string source;
  std::map<std::string, std::string> headers;
  std::string log;
};

Program& program_of(void* handle) { return *static_cast<Program*>(handle); }

// The first file that is missing, "" where there is none.
std::string missing(const Program& program, const std::string& text) {
  static const std::regex include("#include \"([^\"]+)\"");
  for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at) {
    const auto found = program.headers.find((*at)[1]);
    if (found == program.headers.end()) return (*at)[1];
    // Files include those before them in the order of the directory alone: no circle.
    const std::string further = missing(program, found->second);
    if (!further.empty()) return further;
  }
  return "";
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 4;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return 0;
}
int nvrtcGetSupportedArchs(int* all) {
  all[0] = 80;
  all[1] = 86;
  all[2] = 90;
  return 0;
}
int nvrtcCreateProgram(void** handle, const char* source, const char*, int headers,
                       const char* const* texts, const char* const* names) {
  auto program = std::make_unique<Program>();
  program->source = source;
  for (int i = 0; i < headers; ++i) program->headers[names[i]] = texts[i];
  *handle = program.release();
  return 0;
}
int nvrtcDestroyProgram(void** handle) {
  std::unique_ptr<Program>(&program_of(*handle)).reset();
  *handle = nullptr;
  return 0;
}
// STUB_NVRTC_SAYS: the log of a program that does not compile.
int nvrtcCompileProgram(void* handle, int options, const char* const* texts) {
  Program& program = program_of(handle);
  static const std::regex known("--gpu-architecture=(sm|compute)_(80|86|90)");
  if (options < 1 || !std::regex_match(texts[0], known)) return kInvalidOption;
  if (const char* says = std::getenv("STUB_NVRTC_SAYS")) program.log = says;
  const std::string absent = missing(program, program.source);
  if (!absent.empty()) program.log = "cannot open " + absent;
  return program.log.empty() ? 0 : kCompilation;
}
int nvrtcGetProgramLogSize(void* handle, size_t* size) {
  *size = program_of(handle).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* handle, char* text) {
  std::strcpy(text, program_of(handle).log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void*, size_t* size) {
  *size = sizeof kCode;
  return 0;
}
int nvrtcGetCUBIN(void*, char* code) {
  std::memcpy(code, kCode, sizeof kCode);
  return 0;
}
int nvrtcGetPTXSize(void* handle, size_t* size) { return nvrtcGetCUBINSize(handle, size); }
int nvrtcGetPTX(void* handle, char* code) { return nvrtcGetCUBIN(handle, code); }
const char* nvrtcGetErrorString(int status) {
  return status == kCompilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR of the stub";
}

}  // extern "C"
