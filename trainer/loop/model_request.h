// SPDX-License-Identifier: Apache-2.0
// What `hpctl eval` and `hpctl generate` ask of a checkpoint, answered by one process without a
// job: `hptrain --request JSON`. It writes nothing but its answer.
//
//   {"evaluate": {"checkpoint": DIR, "data": PATH, "seq_len": N, "sequences": N}}
//     -> {"step", "loss", "perplexity", "sequences", "tokens"}; 0 sequences: all of PATH
//   {"generate": {"checkpoint": DIR, "prompt": [ID, ...], "tokens": N, "temperature": X, "seed": N,
//                 "vocabulary": N, "end": ID}}
//     -> {"step", "ids"}: at most N tokens after the prompt, and no more than a sequence of the
//        training has together with it; `end`, not among them, ends it. Ids from `vocabulary` on
//        are not the tokenizer's, and never come. Temperature 0: always the likeliest token.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// `request` and the answer are JSON. kInvalidArgument: the request, or the data that it names, is
// wrong. LibTorch's exceptions pass.
Result<std::string> answer_model_request(const std::string& request);

}  // namespace hpctl
