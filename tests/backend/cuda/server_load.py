#!/usr/bin/env python3
"""Load test of a server on a GPU.

Writes a checkpoint of 1.1 B random weights (with torch), serves it and runs `triptych bench` with 128
prompt tokens and 512 generated tokens per request. Prints a line for each number of streams.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

SHAPES = {  # hidden, layers, heads, groups, intermediate, vocabulary
    "1.1b": (2048, 22, 32, 4, 5632, 32000),
    "tiny": (128, 2, 4, 2, 256, 512),
}


def alphabet():
    """The characters of byte-level BPE, by byte."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


def write_checkpoint(folder, shape):
    import torch
    from safetensors.torch import save_file

    hidden, layers, heads, groups, intermediate, vocabulary = SHAPES[shape]
    head = hidden // heads
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": True}
    end = {"id": 256, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    files = {
        "config.json": {
            "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head,
            "intermediate_size": intermediate, "vocab_size": vocabulary, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 8192, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": 256},
        "generation_config.json": {"do_sample": False},
        "tokenizer.json": {
            "added_tokens": [end], "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(alphabet())},
                      "merges": []}},
    }
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)

    torch.manual_seed(1)

    def matrix(outputs, inputs):
        return (torch.randn(outputs, inputs) * inputs ** -0.5).bfloat16()

    def ones():
        return torch.ones(hidden, dtype=torch.bfloat16)

    tensors = {"model.embed_tokens.weight": matrix(vocabulary, hidden),
               "lm_head.weight": matrix(vocabulary, hidden), "model.norm.weight": ones()}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": ones(),
            prefix + "post_attention_layernorm.weight": ones(),
            prefix + "self_attn.q_proj.weight": matrix(hidden, hidden),
            prefix + "self_attn.k_proj.weight": matrix(groups * head, hidden),
            prefix + "self_attn.v_proj.weight": matrix(groups * head, hidden),
            prefix + "self_attn.o_proj.weight": matrix(hidden, hidden),
            prefix + "mlp.gate_proj.weight": matrix(intermediate, hidden),
            prefix + "mlp.up_proj.weight": matrix(intermediate, hidden),
            prefix + "mlp.down_proj.weight": matrix(hidden, intermediate),
        }
    save_file(tensors, os.path.join(folder, "model.safetensors"))


def start_server(command, log_path):
    with open(log_path, "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    while server.poll() is None:
        with open(log_path, encoding="utf-8") as log:
            for line in log:
                if "listening on " in line:
                    return server, line.split("listening on ")[1].strip()
        time.sleep(0.1)
    with open(log_path, encoding="utf-8") as log:
        raise SystemExit(log.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="folder of triptych-server and triptych")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", choices=SHAPES, default="1.1b")
    parser.add_argument("--streams", default="1,8,64,256", help="comma-separated [1,8,64,256]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(folder, options.shape)
        server, address = start_server(
            [os.path.join(options.bin, "triptych-server"), "--model", f"m={folder}", "--device",
             options.device, "--max-running", "256", "--listen", "127.0.0.1:0"],
            os.path.join(folder, "log"))
        try:
            for streams in options.streams.split(","):
                result = json.loads(subprocess.run(
                    [os.path.join(options.bin, "triptych"), "--server", address, "bench",
                     "--concurrency", streams, "--requests", str(3 * int(streams)),
                     "--prompt-tokens", "128", "--output-tokens", "512", "--json", "-"],
                    check=True, capture_output=True, text=True).stdout)
                first, gap = result["seconds_to_first_token"], result["seconds_between_tokens"]
                print(f"{streams:>4} streams: {result['tokens']['generated_per_second']:8.0f} "
                      f"tokens/s; first token {first['p50'] * 1e3:.1f} ms, p99 "
                      f"{first['p99'] * 1e3:.1f}; between tokens {gap['p50'] * 1e3:.2f} ms, p99 "
                      f"{gap['p99'] * 1e3:.2f}", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
