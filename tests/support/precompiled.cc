// SPDX-License-Identifier: Apache-2.0
// The program that test programs take their precompiled headers from (cmake/options.cmake).
int main() { return 0; }
