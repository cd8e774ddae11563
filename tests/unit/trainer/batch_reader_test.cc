// SPDX-License-Identifier: Apache-2.0
// What data.mask makes of the documents in a micro-batch.
#include "trainer/loop/batch_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"
#include "trainer/arch/targets.h"

namespace hpctl {
namespace {

// One window of "abcd." + "fg." + "ijkl", where the point is the byte that ends a file: documents
// begin at tokens 0, 5 and 8.
MicroBatch batch_with(DocumentMask mask) {
  const TemporaryDirectory dir;
  const std::string documents = dir / "documents";
  std::filesystem::create_directory(documents);
  std::ofstream(documents + "/1") << "abcd";
  std::ofstream(documents + "/2") << "fg";
  std::ofstream(documents + "/3") << "ijkl";
  DataSpec data;
  data.path = documents;
  data.seq_len = 11;
  data.mask = mask;
  auto reader = SampleReader::open(data, 1, 256);
  HP_CHECK(reader.ok());
  auto batches = read_micro_batches(*reader, {0}, 1, 1);
  HP_CHECK(batches.ok() && batches->size() == 1);
  return (*batches)[0];
}

std::string targets_of(const MicroBatch& batch) {
  std::string text;
  for (int64_t i = 0; i < batch.targets.numel(); ++i) {
    const auto target = batch.targets.flatten()[i].item<int64_t>();
    text += target == kNotCounted ? '-' : target == 0 ? '.' : static_cast<char>(target);
  }
  return text;
}

TEST(DocumentMask, NoneCountsEveryTarget) {
  const MicroBatch batch = batch_with(DocumentMask::kNone);
  EXPECT_EQ(targets_of(batch), "bcd.fg.ijkl");
  EXPECT_EQ(batch.counted, 11);
  EXPECT_TRUE(batch.documents.empty());
}

TEST(DocumentMask, BordersLeavesOutTheFirstTokenOfTheNextDocument) {
  const MicroBatch batch = batch_with(DocumentMask::kBorders);
  EXPECT_EQ(targets_of(batch), "bcd.-g.-jkl");
  EXPECT_EQ(batch.counted, 9);
  EXPECT_TRUE(batch.documents.empty()) << "attention crosses";
}

TEST(DocumentMask, DocumentsKeepsAttentionApartToo) {
  const MicroBatch batch = batch_with(DocumentMask::kDocuments);
  EXPECT_EQ(targets_of(batch), "bcd.-g.-jkl");
  EXPECT_EQ(batch.counted, 9);
  EXPECT_EQ(batch.documents.lengths, (std::vector<int64_t>{5, 3, 3}));
}

}  // namespace
}  // namespace hpctl
