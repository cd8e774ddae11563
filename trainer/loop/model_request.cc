// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/model_request.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/bounded_json.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/rng.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/sample_reader.h"
#include "trainer/device/torch_device.h"
#include "trainer/loop/batch_reader.h"
#include "trainer/loop/loaded_model.h"

namespace hpctl {
namespace {

using nlohmann::json;

// Imported weights tell how long a sequence may be, which is more than text usually needs.
constexpr int64_t kUsualSeqLen = 2048;

Error wrong_request(const std::string& message) {
  return Error{ErrorCode::kInvalidArgument, message};
}

Result<LoadedModel> open_model(const std::string& checkpoint, const Manifest& manifest,
                               int64_t seq_len) {
  TrainSpec train;
  train.model = manifest.model;
  train.data.seq_len = seq_len;
  train.precision = Precision::kFp32;
  HP_TRY_ASSIGN(Device* const device, open_device(0, train));
  return LoadedModel::load(checkpoint, manifest, seq_len, *device);
}

Result<std::string> evaluate(const json& request) {
  const auto checkpoint = request.at("checkpoint").get<std::string>();
  const auto asked_length = request.at("seq_len").get<int64_t>();
  const auto asked_sequences = request.at("sequences").get<uint64_t>();
  HP_TRY_ASSIGN(const Manifest manifest, read_manifest(checkpoint));
  DataSpec data;
  data.path = request.at("data").get<std::string>();
  data.seq_len = asked_length > 0        ? asked_length
                 : manifest.weights_only ? std::min(manifest.data.seq_len, kUsualSeqLen)
                                         : manifest.data.seq_len;
  HP_TRY_ASSIGN(SampleReader reader, SampleReader::open(data, 0, manifest.model.vocab));
  HP_TRY_ASSIGN(const LoadedModel model, open_model(checkpoint, manifest, data.seq_len));
  const uint64_t sequences =
      asked_sequences == 0 ? reader.windows() : std::min(asked_sequences, reader.windows());
  double sum = 0;
  int64_t counted = 0;
  for (uint64_t sample = 0; sample < sequences; ++sample) {
    HP_TRY_ASSIGN(const auto batches, read_micro_batches(reader, {sample}, 1, 1));
    const MicroBatch& batch = batches.front();
    sum += model.loss_sum(model.run(batch.tokens, batch.documents), batch.targets);
    counted += batch.counted;
  }
  const double loss = sum / static_cast<double>(std::max<int64_t>(1, counted));
  return json_text(nlohmann::ordered_json{{"step", manifest.step},
                                          {"loss", loss},
                                          {"perplexity", std::exp(loss)},
                                          {"sequences", sequences},
                                          {"tokens", counted}});
}

// The next token, of logits in fp64.
Result<int64_t> choose(const at::Tensor& logits, double temperature, Rng& rng) {
  const auto likeliest = logits.argmax().item<int64_t>();
  if (!std::isfinite(logits[likeliest].item<double>())) {
    return Error{ErrorCode::kDataLoss,
                 "the model's output is not finite; its loss was not finite in training, or its "
                 "weights are damaged (hpctl checkpoint verify)"};
  }
  if (temperature <= 0) return likeliest;
  const at::Tensor shares = at::softmax(logits / temperature, 0);
  double left = rng.uniform();
  for (int64_t id = 0; id < shares.numel(); ++id) {
    left -= shares[id].item<double>();
    if (left < 0) return id;
  }
  return likeliest;  // the shares sum to a little less than 1
}

Result<std::string> generate(const json& request) {
  const auto checkpoint = request.at("checkpoint").get<std::string>();
  auto ids = request.at("prompt").get<std::vector<int64_t>>();
  const auto tokens = request.at("tokens").get<uint64_t>();
  const auto temperature = request.at("temperature").get<double>();
  const auto end = request.at("end").get<int64_t>();
  Rng rng(request.at("seed").get<uint64_t>());
  HP_TRY_ASSIGN(const Manifest manifest, read_manifest(checkpoint));
  const int64_t vocabulary =
      std::min(manifest.model.vocab, request.at("vocabulary").get<int64_t>());
  if (ids.empty()) return wrong_request("the prompt has no token");
  for (const int64_t id : ids) {
    if (id >= 0 && id < manifest.model.vocab) continue;
    return wrong_request("the prompt has token " + std::to_string(id) + ", and the model knows " +
                         std::to_string(manifest.model.vocab) +
                         "; use the tokenizer that it was trained with");
  }
  const size_t given = ids.size();
  const auto longest = static_cast<size_t>(manifest.data.seq_len);
  if (given >= longest) {
    return wrong_request("the prompt has " + std::to_string(given) +
                         " tokens, and the sequences of the checkpoint have " +
                         std::to_string(longest) + "; shorten it");
  }
  const size_t most = given + std::min(static_cast<size_t>(tokens), longest - given);
  HP_TRY_ASSIGN(const LoadedModel model,
                open_model(checkpoint, manifest, static_cast<int64_t>(most)));
  while (ids.size() < most) {
    std::vector<int64_t> filled = ids;
    filled.resize(most, 0);
    const at::Tensor row = at::tensor(filled, at::kLong).unsqueeze(0);
    const at::Tensor hidden = model.run(row, {});
    const at::Tensor last = hidden.select(0, 0).narrow(0, static_cast<int64_t>(ids.size()) - 1, 1);
    const at::Tensor logits =
        model.logits(last).flatten().narrow(0, 0, vocabulary).to(at::kCPU).to(at::kDouble);
    HP_TRY_ASSIGN(const int64_t next, choose(logits, temperature, rng));
    if (next == end) break;
    ids.push_back(next);
  }
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(given));
  return json_text(nlohmann::ordered_json{{"step", manifest.step}, {"ids", ids}});
}

}  // namespace

Result<std::string> answer_model_request(const std::string& request) {
  const json document = parse_json_or_discard(request);
  if (!document.is_object()) return wrong_request("the request is not JSON");
  try {
    if (const auto found = document.find("evaluate"); found != document.end()) {
      return evaluate(*found);
    }
    if (const auto found = document.find("generate"); found != document.end()) {
      return generate(*found);
    }
  } catch (const json::exception& e) {
    return wrong_request(std::string("the request is wrong: ") + e.what());
  }
  return wrong_request("the request is neither to evaluate nor to generate");
}

}  // namespace hpctl
