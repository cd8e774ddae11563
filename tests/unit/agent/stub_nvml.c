// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnvidia-ml.so.1. STUB_NVML is a text of letters, one GPU each: g good, l lost,
// e with an uncorrected ECC error, p with rows pending, o old (tells neither, and has no NVLinks),
// t held down by heat, b only when first asked, n without one of its 18 NVLinks; "!" alone: no
// driver; "h": the first question is never answered.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef const char* device;

static const char* gpus(void) {
  const char* text = getenv("STUB_NVML");
  return text == NULL ? "" : text;
}

int nvmlInit_v2(void) {
  if (gpus()[0] == 'h') pause();
  return gpus()[0] == '!' ? 9 : 0;
}
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int status) {
  return status == 9 ? "Driver Not Loaded" : status == 15 ? "GPU is lost" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  snprintf(text, size, "%s", "570.86");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = (unsigned)strlen(gpus());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device* gpu) {
  *gpu = gpus() + index;
  return **gpu == 'l' ? 15 : 0;
}
int nvmlDeviceGetUUID(device gpu, char* text, unsigned size) {
  snprintf(text, size, "GPU-%d", (int)(gpu - gpus()));
  return 0;
}
int nvmlDeviceGetTotalEccErrors(device gpu, int type, int counter, unsigned long long* count) {
  if (*gpu == 'o' || type != 1 || counter != 0) return 3;
  *count = *gpu == 'e' ? 4 : 0;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device gpu, unsigned long long* reasons) {
  static int asked = 0;
  if (*gpu == 'o') return 3;
  *reasons = *gpu == 't' || (*gpu == 'b' && asked++ == 0) ? 0x40 : 0x1;
  return 0;
}
int nvmlDeviceGetNvLinkState(device gpu, unsigned link, unsigned* active) {
  if (*gpu == 'o') return 3;
  *active = !(*gpu == 'n' && link == 7);
  return 0;
}
int nvmlDeviceGetRemappedRows(device gpu, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  if (*gpu == 'o') return 3;
  *corrected = *uncorrected = *failed = 0;
  *pending = *gpu == 'p';
  return 0;
}
