#!/usr/bin/env python3
"""Continues a prompt: prints the text as it arrives, then its cache positions and bytes.

    generate.py PROMPT [MODEL]
"""

import os
import sys

import grpc

from triptych.v1 import inference_pb2, inference_pb2_grpc

request = inference_pb2.GenerateRequest(
    text=sys.argv[1],
    model=sys.argv[2] if len(sys.argv) > 2 else "",  # may be empty if one model is loaded
    max_new_tokens=60,
    sampling=inference_pb2.SamplingParams(temperature=0),
)
with grpc.insecure_channel(os.environ.get("TRIPTYCH_SERVER", "127.0.0.1:50051")) as channel:
    for message in inference_pb2_grpc.InferenceServiceStub(channel).Generate(request):
        print(message.text, end="", flush=True)
        if message.HasField("completion"):
            cache = message.completion.usage.kv_cache
            print(f"\n{cache.positions} positions, {cache.used_bytes} bytes", file=sys.stderr)
