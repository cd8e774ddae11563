# SPDX-License-Identifier: Apache-2.0
# Headers that cost more than the code that includes them, compiled once. Only for tests: elsewhere
# a precompiled header would hide an include that is missing. (One of gRPC's headers was tried:
# 250 MB, and no faster.)

# For hp_test(), which compiles alike. The optimiser does little there: a test's code is run once.
if(GTest_FOUND)
  add_executable(hp_test_headers EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/support/precompiled.cc)
  target_link_libraries(hp_test_headers PRIVATE hp_options GTest::gmock Threads::Threads)
  target_compile_options(hp_test_headers PRIVATE -O1)
  target_precompile_headers(hp_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>
                            <nlohmann/json.hpp>)
endif()
