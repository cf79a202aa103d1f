#!/usr/bin/env python3
"""Decode benchmark of transformers on a GPU, with random weights in the shapes of cuda_bench.

The model is compiled, with a static cache (CUDA graphs). Prints a line for each shape and batch.
"""
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

CONTEXT = 512
STEPS = 24
WARM_UP = 6
LIMIT_S = 80
SHAPES = {
    "1.1B GQA": dict(hidden_size=2048, num_hidden_layers=22, num_attention_heads=32,
                     num_key_value_heads=4, intermediate_size=5632, vocab_size=32000),
    "8B GQA": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
                   num_key_value_heads=8, intermediate_size=14336, vocab_size=128256),
}


def make_model(shape):
    config = LlamaConfig(**shape, max_position_embeddings=8192, tie_word_embeddings=False,
                         attn_implementation="sdpa", dtype=torch.bfloat16)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return config, model


@torch.no_grad()
def step_seconds(config, model, batch):
    torch._dynamo.reset()
    cache = StaticCache(config=config, max_cache_len=CONTEXT + STEPS + 8)
    compiled = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    prompt = torch.randint(0, 1000, (batch, CONTEXT), device="cuda")
    model(input_ids=prompt, past_key_values=cache, use_cache=True,
          cache_position=torch.arange(CONTEXT, device="cuda"), logits_to_keep=1)
    tokens = torch.randint(0, 1000, (batch, 1), device="cuda")
    position = torch.tensor([CONTEXT], device="cuda")
    seconds = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.compiler.cudagraph_mark_step_begin()
        output = compiled(input_ids=tokens, past_key_values=cache, use_cache=True,
                          cache_position=position)
        tokens = output.logits[:, -1:].argmax(-1).clone()
        position += 1
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    seconds = sorted(seconds[WARM_UP:])
    return seconds[len(seconds) // 2]


def main():
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"{torch.cuda.get_device_name()}", flush=True)
    start = time.monotonic()
    for name, shape in SHAPES.items():
        config, model = make_model(shape)
        for batch in (1, 64):
            if time.monotonic() - start > LIMIT_S:
                print(f"{name}, batch {batch}: skipped, time limit reached", flush=True)
                continue
            seconds = step_seconds(config, model, batch)
            print(f"{name}, batch {batch:2} at {CONTEXT}: {seconds * 1e3:.3f} ms a step, "
                  f"{batch / seconds:.0f} tokens/s", flush=True)
        del model
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
