"""Converter of a checkpoint to GGUF: for llama.cpp, and for Triptych if attention is MHA or GQA."""

import array

from gguf import BOOL, FLOAT32, INT32, STRING, UINT32, write_gguf


def as_float32(data, dtype):
    """Data converted to float32, which llama.cpp needs for vectors."""
    if dtype == "F32":
        return data
    return array.array("I", [bits << 16 for bits in array.array("H", data)]).tobytes()


def split_kv_b(model, name, rank):
    """W_UK of each head, transposed, and W_UV: [heads, r, d] and [heads, d, r]."""
    heads, d = model.config["num_attention_heads"], model.config["head_dim"]
    elements = array.array("I" if model.dtype(name) == "F32" else "H", model.data(name))
    keys, values = b"", b""
    for head in range(heads):
        first = head * 2 * d * rank
        key = elements[first:first + d * rank]
        keys += b"".join(key[column::rank].tobytes() for column in range(rank))
        values += elements[first + d * rank:first + 2 * d * rank].tobytes()
    return keys, values


def write_model(model, path):
    config = model.config
    mla = config["attention"] == "mla"
    arch = "deepseek2" if mla else "llama"
    d, layers = config["head_dim"], config["num_hidden_layers"]
    rank, d_rope = config.get("kv_lora_rank", 0), config.get("qk_rope_head_dim", 0)
    fields = [
        ("general.architecture", STRING, arch),
        ("general.name", STRING, "random"),
        (f"{arch}.vocab_size", UINT32, config["vocab_size"]),
        (f"{arch}.context_length", UINT32, config["max_position_embeddings"]),
        (f"{arch}.embedding_length", UINT32, config["hidden_size"]),
        (f"{arch}.block_count", UINT32, layers),
        (f"{arch}.feed_forward_length", UINT32, config["intermediate_size"]),
        (f"{arch}.attention.head_count", UINT32, config["num_attention_heads"]),
        (f"{arch}.attention.head_count_kv", UINT32, 1 if mla else config["num_key_value_heads"]),
        (f"{arch}.attention.key_length", UINT32, rank + d_rope if mla else d),
        (f"{arch}.attention.value_length", UINT32, rank if mla else d),
        (f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, config["norm_eps"]),
        (f"{arch}.rope.dimension_count", UINT32, d_rope if mla else d),
        (f"{arch}.rope.freq_base", FLOAT32, config["rope_theta"]),
        # Each token's text is its number.
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, [f"<{i}>" for i in range(config["vocab_size"])]),
        ("tokenizer.ggml.scores", FLOAT32, [0.0] * config["vocab_size"]),
        ("tokenizer.ggml.token_type", INT32, [4] * config["vocab_size"]),  # user-defined
        ("tokenizer.ggml.eos_token_id", UINT32, 2),  # llama.cpp's default
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.ggml.add_space_prefix", BOOL, False),
    ]
    if mla:
        fields += [
            (f"{arch}.attention.key_length_mla", UINT32, d + d_rope),
            (f"{arch}.attention.value_length_mla", UINT32, d),
            (f"{arch}.attention.q_lora_rank", UINT32, 0),
            (f"{arch}.attention.kv_lora_rank", UINT32, rank),
            (f"{arch}.leading_dense_block_count", UINT32, layers),  # no experts
            (f"{arch}.expert_feed_forward_length", UINT32, config["intermediate_size"]),
            (f"{arch}.expert_shared_count", UINT32, 0),
        ]

    tensors = []

    def add(theirs, ours):
        sizes = model.shape(ours)[::-1]
        if len(sizes) == 1:
            tensors.append((theirs, sizes, "F32", as_float32(model.data(ours), model.dtype(ours))))
        else:
            tensors.append((theirs, sizes, model.dtype(ours), model.with_contiguous_heads(ours)))

    add("token_embd.weight", "model.embed_tokens.weight")
    add("output_norm.weight", "model.norm.weight")
    if "lm_head.weight" in model:
        add("output.weight", "lm_head.weight")
    for i in range(layers):
        ours, theirs = f"model.layers.{i}.", f"blk.{i}."
        names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
                 "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
                 "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
        if mla:
            names |= {"self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
                      "self_attn.kv_a_layernorm": "attn_kv_a_norm"}
            kv_b = ours + "self_attn.kv_b_proj.weight"
            keys, values = split_kv_b(model, kv_b, rank)
            heads, dtype = config["num_attention_heads"], model.dtype(kv_b)
            tensors.append((theirs + "attn_k_b.weight", [d, rank, heads], dtype, keys))
            tensors.append((theirs + "attn_v_b.weight", [rank, d, heads], dtype, values))
        else:
            names |= {"self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
        for our_name, their_name in names.items():
            add(f"{theirs}{their_name}.weight", f"{ours}{our_name}.weight")
    write_gguf(path, fields, tensors)
