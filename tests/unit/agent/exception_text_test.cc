// SPDX-License-Identifier: Apache-2.0
// Outputs as Python, tqdm, torchrun and PyTorch write them.
#include "agent/core/exception_text.h"

#include <gtest/gtest.h>

#include <string>

namespace hpctl::agent {
namespace {

const std::string kFrames =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    import absent\n";
const std::string kAbsent = "ModuleNotFoundError: No module named 'absent'";

TEST(LastException, IsTheLastLineOfTheTraceback) {
  EXPECT_EQ(last_exception(kFrames + kAbsent + "\n"), kAbsent);
  EXPECT_EQ(last_exception("loading\n" + kFrames + kAbsent), kAbsent) << "the last byte is lost";
  EXPECT_EQ(last_exception(kFrames + "KeyboardInterrupt\n"), "KeyboardInterrupt");
  EXPECT_EQ(last_exception(kFrames + "torch.OutOfMemoryError: CUDA out of memory\n"),
            "torch.OutOfMemoryError: CUDA out of memory");
}

// A progress bar that was closed behind the traceback stood as the cause.
TEST(LastException, IsNotTheProgressBarBehindIt) {
  EXPECT_EQ(last_exception(kFrames + kAbsent + "\n\r  0%|          | 0/300 [00:00<?, ?it/s]\n"),
            kAbsent);
  EXPECT_EQ(last_exception("  0%|   | 0/300 [00:00<?, ?it/s]" + kFrames + kAbsent + "\n"), kAbsent);
}

TEST(LastException, StandsBehindThePrefixOfARank) {
  EXPECT_EQ(last_exception("[rank1]: Traceback (most recent call last):\n"
                           "[rank1]:   File \"train.py\", line 9, in <module>\n"
                           "INFO: another process\n"
                           "[rank1]: ValueError: bad batch\n"),
            "ValueError: bad batch");
}

TEST(LastException, IsTheOneThatWasRaisedLast) {
  EXPECT_EQ(last_exception(kFrames +
                           "KeyError: 'a'\n\n"
                           "During handling of the above exception, another exception "
                           "occurred:\n\n" +
                           kFrames + "ValueError: no such key\n"),
            "ValueError: no such key");
}

TEST(LastException, IsNotOneThatFollowsFromIt) {
  EXPECT_EQ(last_exception(kFrames + kAbsent + "\nException ignored in: <function f at 0x1>\n" +
                           kFrames + "AttributeError: 'NoneType'\n"),
            kAbsent);
  EXPECT_EQ(
      last_exception(kFrames + kAbsent + "\n" + kFrames +
                     "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\n"),
      kAbsent);
}

TEST(LastException, IsEmptyWithoutAWholeTraceback) {
  EXPECT_EQ(last_exception(""), "");
  EXPECT_EQ(last_exception("INFO: ready\nKeyboardInterrupt\n"), "");
  EXPECT_EQ(last_exception(kFrames), "");
  EXPECT_EQ(last_exception(kFrames + "INFO: ready\n  0%|   | 0/3\n 50%\n"), "");
}

}  // namespace
}  // namespace hpctl::agent
