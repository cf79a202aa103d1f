"""Writer of a model with experts as GGUF, with random weights: one file for Triptych and llama.cpp."""

import random

from gguf import BOOL, FLOAT32, INT32, STRING, UINT32, write_gguf

POOL_BLOCKS = 1 << 21
GROUP = 32  # weights in a block
# Bytes of a block after its scale, and the scale (a float16) that gives weights of about 0.02.
BLOCKS = {"Q4_0": (16, b"\x9a\x1c"), "Q8_0": (32, b"\x3d\x0b")}
ARCHITECTURES = {"deepseek_v2": "deepseek2", "olmoe": "olmoe", "qwen3_moe": "qwen3moe"}


class Blocks:
    """Random blocks of one tensor."""

    def __init__(self, pool, block_bytes, weights, first):
        self.bytes = weights // GROUP * block_bytes
        self._pool, self._first = pool, first * block_bytes

    def __call__(self):
        first, left = self._first, self.bytes
        while left > 0:
            piece = self._pool[first:first + left]
            yield piece
            left -= len(piece)
            first = 0


def make_pool(kind, seed):
    size, scale = BLOCKS[kind]
    step = len(scale) + size
    pool = bytearray(POOL_BLOCKS * step)
    for i, byte in enumerate(scale):
        pool[i::step] = bytes([byte]) * POOL_BLOCKS
    generator = random.Random(seed)
    for i in range(size):
        pool[len(scale) + i::step] = generator.randbytes(POOL_BLOCKS)
    return memoryview(bytes(pool)), step


def latent_fields(arch, config):
    rotated, rank = config["qk_rope_head_dim"], config["kv_lora_rank"]
    return [
        *([(f"{arch}.attention.q_lora_rank", UINT32, config["q_lora_rank"])]
          if config["q_lora_rank"] else []),
        (f"{arch}.attention.head_count_kv", UINT32, 1),
        (f"{arch}.attention.key_length", UINT32, rank + rotated),
        (f"{arch}.attention.value_length", UINT32, rank),
        (f"{arch}.attention.key_length_mla", UINT32, config["qk_nope_head_dim"] + rotated),
        (f"{arch}.attention.value_length_mla", UINT32, config["v_head_dim"]),
        (f"{arch}.attention.kv_lora_rank", UINT32, rank),
        (f"{arch}.rope.dimension_count", UINT32, rotated),
        (f"{arch}.leading_dense_block_count", UINT32, config["first_k_dense_replace"]),
        (f"{arch}.expert_shared_count", UINT32, config["n_shared_experts"]),
        (f"{arch}.expert_weights_scale", FLOAT32, config["routed_scaling_factor"]),
    ]


def grouped_fields(arch, config):
    head = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    return [
        (f"{arch}.attention.head_count_kv", UINT32, config["num_key_value_heads"]),
        (f"{arch}.attention.key_length", UINT32, head),
        (f"{arch}.attention.value_length", UINT32, head),
        (f"{arch}.rope.dimension_count", UINT32, head),
    ]


def model_fields(arch, config):
    latent = "kv_lora_rank" in config
    vocabulary = config["vocab_size"]
    return [
        ("general.architecture", STRING, arch),
        ("general.name", STRING, "random"),
        (f"{arch}.vocab_size", UINT32, vocabulary),
        (f"{arch}.context_length", UINT32, config["max_position_embeddings"]),
        (f"{arch}.embedding_length", UINT32, config["hidden_size"]),
        (f"{arch}.block_count", UINT32, config["num_hidden_layers"]),
        (f"{arch}.feed_forward_length", UINT32, config["intermediate_size"]),
        (f"{arch}.attention.head_count", UINT32, config["num_attention_heads"]),
        (f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"]),
        (f"{arch}.rope.freq_base", FLOAT32, config["rope_theta"]),
        (f"{arch}.expert_count", UINT32, config["n_routed_experts" if latent else "num_experts"]),
        (f"{arch}.expert_used_count", UINT32, config["num_experts_per_tok"]),
        *([(f"{arch}.expert_feed_forward_length", UINT32, config["moe_intermediate_size"])]
          if "moe_intermediate_size" in config else []),
        *(latent_fields if latent else grouped_fields)(arch, config),
        # Each token's text is its number.
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, [f"<{i}>" for i in range(vocabulary)]),
        ("tokenizer.ggml.scores", FLOAT32, [0.0] * vocabulary),
        ("tokenizer.ggml.token_type", INT32, [4] * vocabulary),  # user-defined
        ("tokenizer.ggml.eos_token_id", UINT32, 2),  # llama.cpp's default
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.ggml.add_space_prefix", BOOL, False),
    ]


def gguf_names(config, named):
    """Tensors as (name, [columns, rows, matrices]), from pairs (published name, [rows, columns])."""
    experts = config["n_routed_experts" if "kv_lora_rank" in config else "num_experts"]
    names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.q_norm": "attn_q_norm",
             "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
             "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
             "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
             "self_attn.kv_a_layernorm": "attn_kv_a_norm", "post_attention_layernorm": "ffn_norm",
             "mlp.gate": "ffn_gate_inp"}
    for matrix in ["gate", "up", "down"]:
        names[f"mlp.{matrix}_proj"] = f"ffn_{matrix}"
        names[f"mlp.shared_experts.{matrix}_proj"] = f"ffn_{matrix}_shexp"
        names[f"mlp.experts.0.{matrix}_proj"] = f"ffn_{matrix}_exps"
    outside = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, shape in named:
        if name in outside:
            yield outside[name], shape[::-1]
            continue
        _, _, layer, part = name.split(".", 3)
        prefix = f"blk.{layer}."
        if part == "self_attn.kv_b_proj":
            heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
            yield prefix + "attn_k_b", [config["qk_nope_head_dim"], rank, heads]
            yield prefix + "attn_v_b", [rank, config["v_head_dim"], heads]
        elif part in names:
            yield prefix + names[part], shape[::-1] + ([experts] if ".experts." in part else [])


def write_model(config, named, kind, path, seed):
    """named: pairs (published name without ".weight", shape); kind: one of BLOCKS."""
    arch = ARCHITECTURES[config["model_type"]]
    pool, block_bytes = make_pool(kind, seed)
    generator = random.Random(seed)
    tensors = []
    for name, sizes in gguf_names(config, named):
        weights = 1
        for size in sizes:
            weights *= size
        if len(sizes) == 1:  # a norm: ones
            data, dtype = b"\x00\x00\x80\x3f" * weights, "F32"
        elif name.endswith("ffn_gate_inp"):
            data = b"".join(generator.choice([b"\x0a\xd7\xa3\x3c", b"\x0a\xd7\xa3\xbc"])  # 0.02, -0.02
                            for _ in range(weights))
            dtype = "F32"
        else:
            data, dtype = Blocks(pool, block_bytes, weights, generator.randrange(POOL_BLOCKS)), kind
        tensors.append((name + ".weight", sizes, dtype, data))
    write_gguf(path, model_fields(arch, config), tensors)
