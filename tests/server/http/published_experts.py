#!/usr/bin/env python3
"""published_experts.py FOLDER: serves a model with experts from a directory in DeepSeek-V2-Lite's
published layout, in int4. The latents are as wide as the published ones; layers, heads and experts are
fewer, and weights are random. FOLDER contains triptych-server and triptych."""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

sys.dont_write_bytecode = True
import serving

ROOT = pathlib.Path(__file__).resolve().parents[3]
LAYERS, HEADS, RANK, ROTATED, KEY, VALUE = 3, 4, 512, 64, 128, 128
FIELDS = {"hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64,
          "n_routed_experts": 8, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
          "vocab_size": 600}
BF16_BYTES = 2


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r}; expected {expected!r}")


def write_model(directory):
    settings = [option for field, value in FIELDS.items() for option in ("--set", f"{field}={value}")]
    subprocess.run([ROOT / "tests/bench/make_experts_model", "--layers", str(LAYERS), *settings, directory],
                   check=True, stdout=subprocess.DEVNULL)


def get(url, body=None):
    request = urllib.request.Request(url, headers={"Content-Type": "application/json"},
                                     data=None if body is None else json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main():
    programs = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder, "model")
        write_model(directory)
        server, grpc, http = serving.serve(
            programs / "triptych-server", "--kv-cache-bytes", "16MiB", "--dtype", "int4", "--model",
            f"lite={directory}")
        http = f"http://{http}"
        try:
            model = get(f"{http}/v1/models/lite")
            expect("attention", model["attention"], "mla")
            expect("formats", (model["weight_dtype"], model["expert_dtype"]), ("int4", "int4"))
            # Under MHA each head would cache a key with its rotated part, and a value.
            expect("bytes of MHA", model["mha_bytes_per_position"],
                   LAYERS * HEADS * (KEY + ROTATED + VALUE) * BF16_BYTES)
            answer = get(f"{http}/v1/chat/completions",
                         {"model": "lite", "max_tokens": 5, "temperature": 0,
                          "messages": [{"role": "user", "content": "Hello"}]})
            choice = answer["choices"][0]
            if not choice["message"]["content"] or choice["finish_reason"] not in ("stop", "length"):
                sys.exit(f"the chat: {answer}")
            kv = json.loads(subprocess.run([programs / "triptych", "--server", grpc, "kv", "--json"],
                                           check=True, capture_output=True).stdout)["models"][0]
            expect("bytes of a position", int(kv["bytesPerPosition"]),
                   LAYERS * (RANK + ROTATED) * BF16_BYTES)
            expect("finished chats", kv["requests"]["finished"], "1")
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
