# SPDX-License-Identifier: Apache-2.0
"""An independent reader and writer of Hugging Face model directories, and of adapters as PEFT
saves them, from the formats' descriptions alone and with the standard library alone.

  hf_peer.py read DIR               NAME DTYPE SHAPE SHA256-of-the-stored-bytes, one line per tensor
  hf_peer.py widen DIR              the same for the values in fp32
  hf_peer.py write DIR DTYPE FILES [MODEL]
                                    a model directory with random weights, split into FILES

  hf_peer.py logits DIR TOKENS [ADAPTER]
                                    what the Llama model of DIR predicts after each of TOKENS (as
                                    1,2,3), computed in fp64: one line of logits per token. With
                                    ADAPTER, a directory, beside each matrix that it adapts

MODEL is llama, qwen2, qwen3, mistral, gpt2 (a GPT2LMHeadModel as transformers saves it) or
gpt2-published (as the weights on the hub are: names without their prefix, the causal mask among the
tensors).
"""
import hashlib
import json
import math
import os
import random
import re
import struct
import sys
from operator import mul

BYTES = {"F32": 4, "BF16": 2, "F16": 2}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 12,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 37, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": False,
}

# What the configs on the hub have otherwise: Qwen/Qwen2.5-0.5B, Qwen/Qwen3-0.6B and
# mistralai/Mistral-7B-v0.1, with small numbers.
KIND_CONFIGS = {
    "llama": {},
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_window_layers": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 64,
        "tie_word_embeddings": True, "use_mrope": False, "use_sliding_window": False,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False,
        "head_dim": 8, "max_window_layers": 2, "rms_norm_eps": 1e-06, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "rope_theta": 10000.0,
        "sliding_window": 24,
    },
}

# The keys of the hub's gpt2/config.json that describe the model.
GPT_CONFIG = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "embd_pdrop": 0.1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 16, "n_embd": 12, "n_head": 2, "n_layer": 2, "n_positions": 16,
    "resid_pdrop": 0.1, "vocab_size": 37,
}


def gpt_shapes(published):
    d, v, n = 12, 37, 16
    p = "" if published else "transformer."
    yield p + "wte.weight", [v, d]
    yield p + "wpe.weight", [n, d]
    for i in range(2):
        h = f"{p}h.{i}."
        if published:
            yield h + "attn.bias", [1, 1, n, n]
        for norm in ("ln_1", "ln_2"):
            yield h + norm + ".weight", [d]
            yield h + norm + ".bias", [d]
        # transformers' Conv1D keeps its weight as [in, out].
        for name, columns, rows in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d),
                                    ("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
            yield h + name + ".weight", [columns, rows]
            yield h + name + ".bias", [rows]
    yield p + "ln_f.weight", [d]
    yield p + "ln_f.bias", [d]


def llama_shapes(kind):
    d, f, v = 12, 20, 37
    h = 8 if kind == "qwen3" else 6
    q, kv = 2 * h, h
    yield "model.embed_tokens.weight", [v, d]
    for i in range(2):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [d]
        yield p + "mlp.down_proj.weight", [d, f]
        yield p + "mlp.gate_proj.weight", [f, d]
        yield p + "mlp.up_proj.weight", [f, d]
        yield p + "post_attention_layernorm.weight", [d]
        yield p + "self_attn.k_proj.weight", [kv, d]
        yield p + "self_attn.o_proj.weight", [d, q]
        yield p + "self_attn.q_proj.weight", [q, d]
        yield p + "self_attn.v_proj.weight", [kv, d]
        if kind == "qwen2":
            for name, rows in (("q", q), ("k", kv), ("v", kv)):
                yield f"{p}self_attn.{name}_proj.bias", [rows]
        if kind == "qwen3":
            yield p + "self_attn.q_norm.weight", [h]
            yield p + "self_attn.k_norm.weight", [h]
    yield "model.norm.weight", [d]
    if not kind.startswith("qwen"):  # tied
        yield "lm_head.weight", [v, d]


def read_file(path):
    with open(path, "rb") as f:
        data = f.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        count = 1
        for extent in entry["shape"]:
            count *= extent
        assert begin == end and stop - begin == count * BYTES[entry["dtype"]], name
        end = stop
        yield name, entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + stop]
    assert 8 + length + end == len(data), "bytes behind the last tensor"


def widened(dtype, data):
    if dtype == "F16":
        return "F32", b"".join(struct.pack("<f", x) for (x,) in struct.iter_unpack("<e", data))
    return dtype, data


def read(directory, change=lambda dtype, data: (dtype, data)):
    index = os.path.join(directory, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index) as f:
            document = json.load(f)
        files = sorted(set(document["weight_map"].values()))
        total = 0
        for file in files:
            for name, _, _, data in read_file(os.path.join(directory, file)):
                assert document["weight_map"].pop(name) == file, name
                total += len(data)
        assert not document["weight_map"], "tensors of the index are missing"
        assert total == document["metadata"]["total_size"]
    else:
        files = ["model.safetensors"]
    for file in files:
        for name, dtype, shape, data in read_file(os.path.join(directory, file)):
            dtype, data = change(dtype, data)
            print(name, dtype, "x".join(map(str, shape)), hashlib.sha256(data).hexdigest())


def matrices(path):
    """The tensors of a file in F32 by name, as rows; a vector has one."""
    found = {}
    for name, dtype, shape, data in read_file(path):
        assert dtype == "F32", name
        values = struct.unpack(f"<{len(data) // 4}f", data)
        columns = shape[-1]
        found[name] = [values[i:i + columns] for i in range(0, len(values), columns)]
    return found


def times(matrix, x):
    return [sum(map(mul, row, x)) for row in matrix]


def peft_names(stored, adapter):
    """As PEFT loads a file: it puts the adapter's name in front of the last word of those names
    that have "lora_" in them, and looks for the result among the parameters of its model."""
    for name, matrix in stored.items():
        head, mark, tail = name.rpartition("lora_")
        words = tail.split(".")
        assert mark and len(words) == 2, name
        yield f"{head}{mark}{words[0]}.{adapter}.{words[1]}", matrix


def is_target(config, module):
    """PEFT's rule: a pattern of whole names, or names and the ends of names behind a dot."""
    targets = config["target_modules"]
    if isinstance(targets, str):
        return re.fullmatch(targets, module) is not None
    return module in targets or any(module.endswith("." + target) for target in targets)


# What LoraConfig takes and this reader understands, and what it takes where a key is absent.
LORA_DEFAULTS = {
    "peft_type": None, "task_type": None, "base_model_name_or_path": None, "r": 8,
    "target_modules": None, "lora_alpha": 8, "lora_dropout": 0.0, "fan_in_fan_out": False,
    "bias": "none", "use_rslora": False, "init_lora_weights": True, "inference_mode": False,
}


def read_adapter(directory, model):
    """{module: (A, B, scaling)}. What PEFT would leave out, or not find, is an error."""
    with open(os.path.join(directory, "adapter_config.json")) as f:
        given = json.load(f)
    assert not given.keys() - LORA_DEFAULTS.keys(), given
    config = LORA_DEFAULTS | given
    assert config["peft_type"] == "LORA" and config["task_type"] == "CAUSAL_LM"
    assert config["bias"] == "none" and not config["fan_in_fan_out"]  # of Linear, as all are
    rank = config["r"]
    scaling = config["lora_alpha"] / (math.sqrt(rank) if config["use_rslora"] else rank)
    stored = dict(peft_names(matrices(os.path.join(directory, "adapter_model.safetensors")),
                             "default"))
    adapter = {}
    for name, weight in model.items():
        module = name.removesuffix(".weight")
        if len(weight) == 1 or module.endswith("embed_tokens") or not is_target(config, module):
            continue
        prefix = f"base_model.model.{module}."
        a = stored.pop(prefix + "lora_A.default.weight")
        b = stored.pop(prefix + "lora_B.default.weight")
        assert (len(a), len(a[0])) == (rank, len(weight[0])), name
        assert (len(b), len(b[0])) == (len(weight), rank), name
        adapter[module] = a, b, scaling
    assert adapter and not stored, list(stored)
    return adapter


def normalised(x, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight[0])]


def turned(head, position, theta):
    half = len(head) // 2
    angles = [position * theta ** (-i / half) for i in range(half)]
    return ([head[i] * math.cos(a) - head[i + half] * math.sin(a) for i, a in enumerate(angles)] +
            [head[i + half] * math.cos(a) + head[i] * math.sin(a) for i, a in enumerate(angles)])


class Llama:
    """LlamaForCausalLM of transformers, for one sequence."""

    def __init__(self, directory, adapter_directory=None):
        with open(os.path.join(directory, "config.json")) as f:
            self.config = json.load(f)
        assert self.config["model_type"] == "llama" and not self.config.get("rope_scaling")
        self.weights = matrices(os.path.join(directory, "model.safetensors"))
        if not self.config["tie_word_embeddings"]:
            assert "lm_head.weight" in self.weights
        self.adapter = read_adapter(adapter_directory, self.weights) if adapter_directory else {}

    def linear(self, module, x):
        y = times(self.weights[module + ".weight"], x)
        if module in self.adapter:
            a, b, scaling = self.adapter[module]
            y = [v + scaling * d for v, d in zip(y, times(b, times(a, x)))]
        return y

    def norm(self, module, x):
        return normalised(x, self.weights[module + ".weight"], self.config["rms_norm_eps"])

    def attention(self, p, rows):
        c = self.config
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        dim = c["hidden_size"] // heads

        def split(module, x, count):
            y = self.linear(p + module, x)
            return [y[i * dim:(i + 1) * dim] for i in range(count)]

        def positions(module, count):
            return [[turned(head, t, c["rope_theta"]) for head in split(module, x, count)]
                    for t, x in enumerate(rows)]

        queries, keys = positions("q_proj", heads), positions("k_proj", kv_heads)
        values = [split("v_proj", x, kv_heads) for x in rows]
        for t in range(len(rows)):
            mixed = []
            for h in range(heads):
                k = h * kv_heads // heads
                scores = [sum(map(mul, queries[t][h], keys[s][k])) / math.sqrt(dim)
                          for s in range(t + 1)]
                weights = [math.exp(score - max(scores)) for score in scores]
                total = sum(weights)
                mixed += [sum(w * values[s][k][i] for s, w in enumerate(weights)) / total
                          for i in range(dim)]
            yield self.linear(p + "o_proj", mixed)

    def mlp(self, p, x):
        gate, up = self.linear(p + "gate_proj", x), self.linear(p + "up_proj", x)
        return self.linear(p + "down_proj",
                           [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])

    def logits(self, tokens):
        embedding = self.weights["model.embed_tokens.weight"]
        rows = [embedding[token] for token in tokens]
        for i in range(self.config["num_hidden_layers"]):
            p = f"model.layers.{i}."
            normed = [self.norm(p + "input_layernorm", x) for x in rows]
            rows = [[v + d for v, d in zip(x, y)]
                    for x, y in zip(rows, self.attention(p + "self_attn.", normed))]
            for t, x in enumerate(rows):
                y = self.mlp(p + "mlp.", self.norm(p + "post_attention_layernorm", x))
                rows[t] = [v + d for v, d in zip(x, y)]
        head = "model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head"
        return [self.linear(head, self.norm("model.norm", x)) for x in rows]


def print_logits(directory, tokens, adapter_directory=None):
    model = Llama(directory, adapter_directory)
    for row in model.logits([int(token) for token in tokens.split(",")]):
        print(*map(repr, row))


def write(directory, dtype, count, model="llama"):
    os.makedirs(directory)
    rng = random.Random(7)
    tensors = []
    gpt = model.startswith("gpt2")
    for name, shape in gpt_shapes(model != "gpt2") if gpt else llama_shapes(model):
        numel = 1
        for extent in shape:
            numel *= extent
        if dtype == "F32":
            data = b"".join(struct.pack("<f", rng.gauss(0, 1)) for _ in range(numel))
        elif dtype == "F16":
            data = b"".join(struct.pack("<e", rng.gauss(0, 1)) for _ in range(numel))
        else:  # the upper half of an fp32 is a bf16
            data = b"".join(struct.pack("<f", rng.gauss(0, 1))[2:] for _ in range(numel))
        tensors.append((name, shape, data))
    rng.shuffle(tensors)  # an order of its own
    names = ["model.safetensors"] if count == 1 else [
        f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    weight_map = {}
    for i, file in enumerate(names):
        header, body = {"__metadata__": {"format": "pt"}}, b""
        for name, shape, data in tensors[i::count]:
            header[name] = {"dtype": dtype, "shape": shape,
                            "data_offsets": [len(body), len(body) + len(data)]}
            body += data
            weight_map[name] = file
        text = json.dumps(header).encode()
        with open(os.path.join(directory, file), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + body)
    if count > 1:
        with open(os.path.join(directory, "model.safetensors.index.json"), "w") as f:
            total = sum(len(data) for _, _, data in tensors)
            json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(GPT_CONFIG if gpt else CONFIG | KIND_CONFIGS[model], f)


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2])
    elif sys.argv[1] == "logits":
        print_logits(*sys.argv[2:])
    elif sys.argv[1] == "widen":
        read(sys.argv[2], widened)
    else:
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
