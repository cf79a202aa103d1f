#!/usr/bin/env python3
"""Prints the KV cache statistics of each model, in bytes.

    cache_statistics.py
"""

import os

import grpc

from triptych.v1 import kv_cache_pb2, kv_cache_pb2_grpc

with grpc.insecure_channel(os.environ.get("TRIPTYCH_SERVER", "127.0.0.1:50051")) as channel:
    stats = kv_cache_pb2_grpc.KvCacheServiceStub(channel).GetKvCacheStats(
        kv_cache_pb2.GetKvCacheStatsRequest())
for model in stats.models:
    print(f"{model.model}: pool {model.pool_bytes}, allocated {model.allocated_bytes}, "
          f"evictable {model.evictable_bytes}, {model.bytes_per_position} per position")
