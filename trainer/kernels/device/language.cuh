// SPDX-License-Identifier: Apache-2.0
// What the kernels need beyond C++ and what NVRTC has built in. A test has another file in its
// place that makes plain C++ of them (tests/unit/trainer/device_language.h).
#pragma once

// Memory of the block, as much as the launch asks for.
inline float* dynamic_shared() {
  extern __shared__ float memory[];
  return memory;
}

// IEEE binary16 by its bits; NVRTC has the type only with the toolkit's headers.
inline float float_of_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
inline unsigned short half_of_float(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// A kernel that the host finds by its name.
#define HP_KERNEL(name, Pass, ...)                                                              \
  extern "C" __global__ void __launch_bounds__(hpctl::device::kThreads) name(const Pass pass) { \
    __VA_ARGS__(pass);                                                                          \
  }
