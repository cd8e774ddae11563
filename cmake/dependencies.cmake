# SPDX-License-Identifier: Apache-2.0
# Packages (Debian bookworm names in scripts/packages.txt).
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
# Optional: without it `hpagent check` skips what it would ask libfabric, and says so.
find_path(LIBFABRIC_INCLUDE_DIR rdma/fabric.h)
if(NOT LIBFABRIC_INCLUDE_DIR)
  message(STATUS "libfabric's headers are absent: hpagent check will skip its transfers")
endif()
