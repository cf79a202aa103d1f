#!/usr/bin/env python3
"""Prints the log-likelihood of each text under a model, and its number of scored tokens.

    score.py MODEL TEXT...
"""

import os
import sys

import grpc

from triptych.v1 import inference_pb2, inference_pb2_grpc

request = inference_pb2.ScoreRequest(
    model=sys.argv[1],
    inputs=[inference_pb2.ScoreInput(text=text) for text in sys.argv[2:]],
)
with grpc.insecure_channel(os.environ.get("TRIPTYCH_SERVER", "127.0.0.1:50051")) as channel:
    try:
        response = inference_pb2_grpc.InferenceServiceStub(channel).Score(request)
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
for result, text in zip(response.results, sys.argv[2:]):
    print(f"{result.log_likelihood:.3f}  {result.scored_tokens}  {text}")
