#!/usr/bin/env python3
"""Uses a server as a router does: vllm.grpc.engine.VllmEngine, with a router's own protos (router/).
Tokens must be those of triptych.v1.

    tests/python/vllm_engine.py --work DIR --bin DIR [--loads N]
"""

import argparse
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import zipfile

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TIMEOUT = 120  # seconds


def check(holds, what):
    if not holds:
        raise SystemExit(f"WRONG: {what}")


def generate_messages(work):
    """Compiles the test's own protos, and the server's for its own service, into `work`."""
    os.makedirs(work, exist_ok=True)
    for folder, protos in ((f"{HERE}/router", ["common.proto", "worker.proto"]),
                           (f"{ROOT}/proto", ["triptych/v1/inference.proto",
                                              "triptych/v1/kv_cache.proto"])):
        subprocess.run(["protoc", f"--proto_path={folder}", f"--python_out={work}", *protos],
                       check=True)
    sys.path.insert(0, work)


class Server:
    """A server of two models in its own process, or of one."""

    def __init__(self, programs, *options, models=("mla",)):
        self.process = subprocess.Popen(
            [f"{programs}/triptych-server", "--listen", "127.0.0.1:0", "--http", "none",
             *(part for name in models for part in
               ("--model", f"{name}={ROOT}/models/shakespeare-{name}")), *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        log = ""
        for line in self.process.stdout:
            log += line
            if found := re.search(r"listening on (\S+)", line):
                self.address = found[1]
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        raise SystemExit(f"vllm_engine: the server did not start: {log}")

    def __enter__(self):
        self.drains = False
        self.channel = grpc.insecure_channel(
            self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.drain()
        code = self.process.wait(TIMEOUT)
        check(code == 0, f"the server ends with {code}")

    def drain(self):
        if not self.drains:
            self.process.terminate()  # a second signal would stop it at once
        self.drains = True

    def call(self, method, request, response, **options):
        return self.channel.unary_unary(
            f"/vllm.grpc.engine.VllmEngine/{method}", type(request).SerializeToString,
            response.FromString)(request, timeout=TIMEOUT, **options)

    def stream(self, method, request, response, package="vllm.grpc.engine.VllmEngine", **options):
        return self.channel.unary_stream(
            f"/{package}/{method}", type(request).SerializeToString, response.FromString)(
                request, timeout=TIMEOUT, **options)


def refusal(run):
    """The code and the details of the error that `run` gets."""
    try:
        result = run()
        if hasattr(result, "__iter__"):
            list(result)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    raise SystemExit("vllm_engine: WRONG: a call is not refused")


def test_generate(server):
    import worker_pb2 as worker
    from triptych.v1 import inference_pb2 as own

    def sampling(**fields):
        return worker.SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, **fields)

    def routed(params, stream, **request):
        if not request:
            request = {"text": "To be, or not to be"}
        chunks, completes = {}, {}
        for message in server.stream(
                "Generate", worker.GenerateRequest(sampling_params=params, stream=stream, **request),
                worker.GenerateResponse):
            if message.HasField("chunk"):
                check(stream and message.chunk.index not in completes, "a chunk at its place")
                check(message.chunk.completion_tokens == len(message.chunk.token_ids), "its length")
                chunks.setdefault(message.chunk.index, []).append(message.chunk)
            else:
                completes[message.complete.index] = message.complete
        outputs = {}
        for index, complete in completes.items():
            ids = list(complete.output_ids)
            if stream:
                check(not ids, "a stream's tokens are in its chunks")
                ids = [token for chunk in chunks.get(index, []) for token in chunk.token_ids]
            check(complete.completion_tokens == len(ids), "the completion's number of tokens")
            outputs[index] = ids
        return outputs, chunks, completes

    def direct(prompt=None, n=1, **fields):
        request = own.GenerateRequest(max_new_tokens=24, n=n, **prompt or
                                      {"text": "To be, or not to be"}, **fields)
        if "ignore_eos" not in fields:
            request.ignore_eos = True
        if not request.sampling.HasField("temperature"):
            request.sampling.temperature = 0
        # The defaults of VllmEngine.
        for name, value in (("top_k", 0), ("top_p", 1), ("min_p", 0), ("repetition_penalty", 1)):
            if not request.sampling.HasField(name):
                setattr(request.sampling, name, value)
        outputs, ends = {}, {}
        for message in server.stream("Generate", request, own.GenerateResponse,
                                     package="triptych.v1.InferenceService"):
            outputs.setdefault(message.choice, []).extend(message.token_ids)
            if message.HasField("completion"):
                ends[message.choice] = message.completion
        return outputs, ends

    plain, ends = direct()
    for stream in (False, True):
        outputs, _, completes = routed(sampling(), stream)
        check(outputs == plain, f"greedy tokens, stream={stream}: {outputs}, not {plain}")
        check(completes[0].finish_reason == "length", "the finish reason")
        check(completes[0].prompt_tokens == ends[0].usage.prompt_tokens, "prompt tokens")
        check(not completes[0].WhichOneof("matched_stop"), "no matched stop")
    again, _, completes = routed(sampling(), False)
    check(again == plain and completes[0].cached_tokens > 0, "prefix hits")

    ids = own.TokenIds(ids=[7, 8, 9, 10, 11])
    outputs, _, _ = routed(sampling(), True,
                           tokenized=worker.TokenizedInput(input_ids=ids.ids, original_text="?"))
    check(outputs == direct({"tokens": ids})[0], "a prompt of tokens")

    # Everything that shapes the choice of tokens.
    for stream in (False, True):
        params = worker.SamplingParams(
            temperature=0.9, top_p=0.95, top_k=40, min_p=0.01, repetition_penalty=1.1,
            frequency_penalty=0.2, presence_penalty=0.1, seed=17, n=3, max_tokens=24,
            ignore_eos=True, min_tokens=3, logit_bias={5: -3.0})
        outputs, _, _ = routed(params, stream)
        shaped = own.SamplingParams(
            temperature=0.9, top_p=0.95, top_k=40, min_p=0.01, repetition_penalty=1.1,
            frequency_penalty=0.2, presence_penalty=0.1, seed=17, logit_bias={5: -3.0})
        check(outputs == direct(n=3, sampling=shaped, min_new_tokens=3)[0], "sampled tokens")

    # Ends of the output.
    stop = plain[0][5]
    outputs, _, completes = routed(sampling(stop_token_ids=[stop]), True)
    check(outputs[0] == plain[0][:plain[0].index(stop) + 1], "the output ends with the stop token")
    check((completes[0].finish_reason, completes[0].matched_token_id) == ("stop", stop),
          "the matched token")
    outputs, _, completes = routed(sampling(stop=["e"]), False)
    check((completes[0].finish_reason, completes[0].matched_stop_str) == ("stop", "e"),
          "the matched string")
    check(outputs == direct(stop=["e"])[0], "tokens before a stop string")

    # Forms of output.
    choices = worker.ChoiceConstraint(choices=["yes", "no"])
    for form, same in (({"regex": "[ab]{4}"}, {"regex": "[ab]{4}"}),
                       ({"grammar": 'root ::= "x"+ "y"'}, {"grammar": 'root ::= "x"+ "y"'}),
                       ({"json_object": True}, {"json_object": True}),
                       ({"json_schema": '{"type":"integer"}'},
                        {"json_schema": '{"type":"integer"}'}),
                       ({"choice": choices}, {"choice": {"texts": ["yes", "no"]}})):
        outputs, _, _ = routed(sampling(**form), False)
        check(outputs == direct(**same)[0], f"a form: {form}")

    # Log-probabilities.
    for stream in (False, True):
        _, chunks, completes = routed(sampling(logprobs=2, prompt_logprobs=1), stream)
        first = chunks[0][0] if stream else completes[0]
        told = first.input_logprobs
        check(len(told.token_ids) == completes[0].prompt_tokens == len(told.token_logprobs) ==
              len(told.top_logprobs), "log-probabilities of the prompt")
        check(not told.token_logprobs[0].HasField("value") and
              all(one.HasField("value") for one in told.token_logprobs[1:]),
              "all but the first token have one")
        parts = chunks[0] if stream else [completes[0]]
        values = [value for part in parts for value in part.output_logprobs.token_logprobs]
        tops = [top for part in parts for top in part.output_logprobs.top_logprobs]
        check(len(values) == len(tops) == 24 and all(len(top.values) == 2 for top in tops),
              "log-probabilities of the output")
        check(all(abs(value - top.values[0]) < 1e-6 for value, top in zip(values, tops)),
              "greedy tokens are the most likely ones")
    _, chunks, completes = routed(
        worker.SamplingParams(max_tokens=0, prompt_logprobs=0), False)
    check(len(completes[0].input_logprobs.token_ids) == completes[0].prompt_tokens,
          "a prompt alone")


def test_refusals(server):
    import worker_pb2 as worker
    tokens = worker.TokenizedInput(input_ids=[1, 2])
    params = worker.SamplingParams
    for expected, fields in {
            "mm_inputs is set": {"mm_inputs": worker.MultimodalInputs(
                pixel_values=worker.TensorData(shape=[1], dtype="float32", inline=b"1234"))},
            "kv_transfer_params is set": {
                "kv_transfer_params": worker.KvTransferParams(remote_host="a")},
            "kv_transfer_params_json is set": {"kv_transfer_params_json": "{}"},
            "data_parallel_rank is 1; allowed: 0": {"data_parallel_rank": 1},
            "sampling_params.structural_tag is set": {
                "sampling_params": params(structural_tag="{}")},
            "sampling_params.truncate_prompt_tokens is set": {
                "sampling_params": params(truncate_prompt_tokens=-1)},
            "request_id is 300 bytes long; allowed: at most 256": {"request_id": "x" * 300},
            "sampling_params.top_p is 2; allowed": {"sampling_params": params(top_p=2)},
            "sampling_params.max_tokens is 0; allowed": {"sampling_params": params(max_tokens=0)},
            "sampling_params.n is 17; allowed": {"sampling_params": params(n=17)},
            "sampling_params.logprobs is -1; allowed": {"sampling_params": params(logprobs=-1)},
            "sampling_params.stop[0] is 0 bytes": {"sampling_params": params(stop=[""])},
            "sampling_params.regex": {"sampling_params": params(regex="(")},
            "sampling_params.stop_token_ids[0] is -1; allowed": {
                "sampling_params": params(stop_token_ids=[2**32 - 1])}}.items():
        request = worker.GenerateRequest(**{"tokenized": tokens, **fields})
        code, details = refusal(lambda: server.stream("Generate", request, worker.GenerateResponse))
        check(code == "INVALID_ARGUMENT" and details.startswith(expected) and "\n" not in details,
              f"{expected}: {code}: {details}")
    for expected, request in {
            "input is missing": worker.GenerateRequest(),
            "tokenized.input_ids is empty": worker.GenerateRequest(
                tokenized=worker.TokenizedInput()),
            "tokenized.input_ids[1] is": worker.GenerateRequest(
                tokenized=worker.TokenizedInput(input_ids=[1, 2**31]))}.items():
        code, details = refusal(lambda: server.stream("Generate", request, worker.GenerateResponse))
        check(code == "INVALID_ARGUMENT" and details.startswith(expected),
              f"{expected}: {code}: {details}")
    code, details = refusal(lambda: server.call(
        "Embed", worker.EmbedRequest(request_id="1", tokenized=tokens), worker.EmbedResponse))
    check(code == "UNIMPLEMENTED" and "Embed" in details, f"Embed: {code}: {details}")
    code, details = refusal(lambda: server.call(
        "GetLoads", worker.GetLoadsRequest(dp_rank=3), worker.GetLoadsResponse))
    check((code, details) == ("INVALID_ARGUMENT", "dp_rank is 3; allowed: 0"), f"a rank: {details}")


def test_abort(server):
    import worker_pb2 as worker

    def endless(request_id):
        # The output is longer than this test.
        return server.stream("Generate", worker.GenerateRequest(
            request_id=request_id, stream=True, text="a",
            sampling_params=worker.SamplingParams(ignore_eos=True, max_tokens=500, n=2)),
            worker.GenerateResponse)

    stream = endless("a request")
    next(stream)
    code, details = refusal(lambda: endless("a request"))
    check(code == "ALREADY_EXISTS" and "which is live" in details, f"an id twice: {code}: {details}")
    server.call("Abort", worker.AbortRequest(request_ids=["nobody", "a request"]),
                worker.AbortResponse)
    rest = list(stream)
    ends = {one.complete.index: one.complete.finish_reason for one in rest
            if one.HasField("complete")}
    check(set(ends) == {0, 1} and set(ends.values()) <= {"abort", "length"}, f"the ends: {ends}")
    for _ in range(100):
        if server.call("GetServerInfo", worker.GetServerInfoRequest(),
                       worker.GetServerInfoResponse).active_requests == 0:
            break
        time.sleep(0.05)
    else:
        check(False, "an aborted request is live")
    next(endless("a request"))  # the id is free again


def test_abort_before_the_start(server):
    """Several aborts of a request whose schema is still compiled, and a client that leaves."""
    import worker_pb2 as worker
    for i in range(40):
        name = f"early {i}"
        properties = {f"p{i}_{j}": {"type": "string", "maxLength": 50 + i} for j in range(40)}
        stream = server.stream("Generate", worker.GenerateRequest(
            request_id=name, stream=True, text="a", sampling_params=worker.SamplingParams(
                json_schema=json.dumps({"type": "object", "properties": properties}),
                max_tokens=5)), worker.GenerateResponse)
        server.call("Abort", worker.AbortRequest(request_ids=[name] * 5), worker.AbortResponse)
        if i % 2 == 0:
            stream.cancel()
            continue
        ends = [one.complete.finish_reason for one in stream if one.HasField("complete")]
        check(ends in (["abort"], ["length"], ["stop"]), f"an early abort: {ends}")


def test_info(server):
    import common_pb2 as common
    import worker_pb2 as worker
    health = server.call("HealthCheck", worker.HealthCheckRequest(), worker.HealthCheckResponse)
    check(health.healthy, "it is healthy")
    info = server.call("GetModelInfo", worker.GetModelInfoRequest(), worker.GetModelInfoResponse)
    folder = f"{ROOT}/models/shakespeare-mla"
    check(info.served_model_name == "mla" and info.is_generation and not info.supports_vision and
          os.path.samefile(info.model_path, folder) and info.max_context_length > 0 and
          info.vocab_size > 0, f"the model: {info}")
    check(set(json.loads(info.default_sampling_params_json)) ==
          {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}, "its defaults")
    loads = server.call("GetLoads", worker.GetLoadsRequest(), worker.GetLoadsResponse)
    check(loads.dp_rank_count == len(loads.loads) == 1 and
          loads.loads[0].max_total_num_tokens > 0 and loads.loads[0].cache_hit_rate > 0 and
          re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", loads.timestamp), f"its load: {loads}")
    chunks = list(server.stream("GetTokenizer", common.GetTokenizerRequest(),
                                common.GetTokenizerChunk))
    data = b"".join(chunk.data for chunk in chunks)
    check(all(not chunk.sha256 for chunk in chunks[:-1]) and
          chunks[-1].sha256 == hashlib.sha256(data).hexdigest(), "the archive's fingerprint")
    archive = zipfile.ZipFile(io.BytesIO(data))
    check(archive.testzip() is None and "config.json" in archive.namelist(), "the archive")
    for name in archive.namelist():
        with open(f"{folder}/{name}", "rb") as file:
            check(archive.read(name) == file.read(), f"{name} of the archive")
    # Many who ask at once, some of whom leave, and who read late.
    streams = [server.stream("GetTokenizer", common.GetTokenizerRequest(),
                             common.GetTokenizerChunk) for _ in range(90)]
    for stream in streams[::3]:
        stream.cancel()
    health = server.call("HealthCheck", worker.HealthCheckRequest(), worker.HealthCheckResponse)
    check(health.healthy, "others are served meanwhile")
    for i, stream in enumerate(streams):
        check(i % 3 == 0 or b"".join(chunk.data for chunk in stream) == data, "the same archive")


class Replay:
    """The blocks that a subscriber believes to be cached."""

    def __init__(self):
        self.blocks, self.last = {}, 0

    def apply(self, batch):
        check(self.last in (0, batch.sequence_number - 1), "batches come in order")
        self.last = batch.sequence_number
        for event in batch.events:
            kind = event.WhichOneof("data")
            if kind == "cleared":
                self.blocks.clear()
            elif kind == "removed":
                for block in event.removed.block_hashes:
                    check(self.blocks.pop(block, None), "a removed block was stored")
            else:
                parent = event.stored.parent_block_hash \
                    if event.stored.HasField("parent_block_hash") else None
                for block in event.stored.blocks:
                    check(block.block_hash not in self.blocks and
                          len(block.token_ids) == block.block_size, "a stored block is new")
                    check(parent is None or parent in self.blocks, "its parent is there")
                    self.blocks[block.block_hash] = (parent, tuple(block.token_ids))
                    parent = block.block_hash


def quiet(server):
    """Statistics at a moment without requests."""
    from triptych.v1 import kv_cache_pb2 as stats
    get = server.channel.unary_unary(
        "/triptych.v1.KvCacheService/GetKvCacheStats",
        stats.GetKvCacheStatsRequest.SerializeToString, stats.GetKvCacheStatsResponse.FromString)
    for _ in range(1000):
        now = get(stats.GetKvCacheStatsRequest(), timeout=TIMEOUT).models[0]
        if now.allocated_bytes == 0 and now.waiting_sequences == 0:
            return now
        time.sleep(0.01)
    check(False, "the server becomes quiet")


def load(server, seed, requests=60):
    """Random requests at once, which share prefixes; some are cancelled."""
    import worker_pb2 as worker
    draw = random.Random(seed)
    streams = []
    for _ in range(requests):
        prompt = [1 + draw.randrange(3)] * draw.randrange(1, 90) + [draw.randrange(60)]
        streams.append(server.stream("Generate", worker.GenerateRequest(
            tokenized=worker.TokenizedInput(input_ids=prompt), stream=True,
            sampling_params=worker.SamplingParams(seed=draw.randrange(99), ignore_eos=True,
                                                  max_tokens=draw.randrange(1, 60),
                                                  n=draw.randrange(1, 3))),
            worker.GenerateResponse))
    for stream in streams:
        if draw.randrange(6) == 0:
            stream.cancel()
            continue
        for _ in stream:
            pass


def subscribe(server, start=0, channel=None, timeout=TIMEOUT, **options):
    import common_pb2 as common
    return (channel or server.channel).unary_stream(
        "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents",
        common.SubscribeKvEventsRequest.SerializeToString, common.KvEventBatch.FromString)(
            common.SubscribeKvEventsRequest(start_sequence_number=start), timeout=timeout,
            **options)


def follow(stream, replay, server):
    """Reads all batches so far. The replayed set must be as large as the cache, which is quiet."""
    expected = quiet(server).evictable_blocks
    # The refusal of a number from the future names the next one.
    next_number = int(refusal(lambda: subscribe(server, 2**63))[1].split()[-1])
    while replay.last + 1 < next_number:
        replay.apply(next(stream))
    check(len(replay.blocks) == expected, f"{len(replay.blocks)} blocks, not {expected}")


def test_events(programs, loads):
    # A pool that holds a few of the requests at a time.
    with Server(programs, "--kv-cache-bytes", "300KiB", "--kv-events", "grpc",
                "--block-positions", "8") as server:
        stream = subscribe(server, timeout=TIMEOUT + 10 * loads)
        stream.initial_metadata()
        early = Replay()
        for seed in range(loads):
            load(server, seed)
            follow(stream, early, server)
        stats = quiet(server)
        check(early.blocks and stats.evicted_blocks and stats.preemptions,
              f"blocks are evicted, and requests preempted: {stats}")
        # Another one that begins now, and one that resumes.
        late = Replay()
        follow(subscribe(server), late, server)
        check(late.blocks == early.blocks, "a late subscriber knows the same blocks")
        follow(stream, early, server)  # the late one may have started the events again
        resumed = subscribe(server, early.last)
        check(next(resumed).sequence_number == early.last, "a stream resumes where it was asked to")
        resumed.cancel()
        for start, code in ((early.last + 2, "OUT_OF_RANGE"), (2**64 - 1, "OUT_OF_RANGE"),
                            (1, "OUT_OF_RANGE")):
            told = refusal(lambda: subscribe(server, start))
            check(told[0] == code and "start_sequence_number is" in told[1], f"{start}: {told}")
        # A thousand that never read.
        idle = [subscribe(server) for _ in range(1000)]
        for one in idle:
            one.initial_metadata()  # the server has answered
        codes = [one.code().name for one in idle if one.done()]
        check(set(codes) == {"RESOURCE_EXHAUSTED"} and 900 <= len(codes) <= 999,
              f"most of a thousand subscribers are refused: {len(codes)} {set(codes)}")
        load(server, loads)
        follow(stream, early, server)
        for one in idle:
            one.cancel()
        # Drain ends the streams.
        server.drain()
        told = refusal(lambda: stream)
        check(told == ("UNAVAILABLE", "the server is draining"), f"the end of a stream: {told}")


def test_lost_events(programs):
    # A block is a position, so that the server soon keeps only the latest events.
    with Server(programs, "--kv-cache-bytes", "100KiB", "--kv-events", "grpc",
                "--block-positions", "1", "--max-batch-tokens", "64") as server:
        small = grpc.insecure_channel(server.address, options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)])  # 64 KiB
        slow, reader, replay = subscribe(server, channel=small), subscribe(server), Replay()
        slow.initial_metadata()
        first = 0
        for seed in range(100):
            load(server, seed)
            follow(reader, replay, server)
            first = first or replay.last
            code, details = refusal(lambda: subscribe(server, 2**63))
            if int(re.search(r"or (\d+) to", details)[1]) > first:
                break
        late = Replay()
        follow(subscribe(server), late, server)
        follow(reader, replay, server)
        check(late.blocks == replay.blocks, "all know the blocks after a new start")
        code, details = refusal(lambda: slow)
        small.close()
        check(code == "DATA_LOSS" and "subscribe again" in details, f"{code}: {details}")


def test_models(programs):
    import common_pb2 as common
    import worker_pb2 as worker
    with Server(programs, "--kv-cache-bytes", "8MiB", models=("mla", "mha")) as server:
        ask = lambda **options: server.call(
            "GetModelInfo", worker.GetModelInfoRequest(), worker.GetModelInfoResponse, **options)
        code, details = refusal(ask)
        check(code == "INVALID_ARGUMENT" and details.startswith("x-model is empty, but several"),
              f"no model: {code}: {details}")
        check(ask(metadata=[("x-model", "mha")]).served_model_name == "mha", "x-model")
        check(refusal(lambda: ask(metadata=[("x-model", "other")]))[0] == "NOT_FOUND", "another")
        code, details = refusal(lambda: server.stream(
            "GetTokenizer", common.GetTokenizerRequest(), common.GetTokenizerChunk))
        check(code == "INVALID_ARGUMENT" and details.startswith("x-model is empty"),
              f"no model for GetTokenizer: {code}: {details}")
        request = worker.GenerateRequest(
            text="a", sampling_params=worker.SamplingParams(max_tokens=3, temperature=0))
        outputs = [list(server.stream("Generate", request, worker.GenerateResponse,
                                      metadata=[("x-model", name)])) for name in ("mla", "mha")]
        check(all(len(output) == 1 for output in outputs), "each model generates")
        code, details = refusal(lambda: subscribe(server, metadata=[("x-model", "mla")]))
        check(code == "UNIMPLEMENTED" and "--kv-events" in details, f"no events: {code}: {details}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--loads", type=int, default=3, help="loads of 60 requests for the events")
    options = parser.parse_args()
    generate_messages(options.work)
    with Server(options.bin, "--kv-cache-bytes", "8MiB") as server:
        test_generate(server)
        test_refusals(server)
        test_abort(server)
        test_abort_before_the_start(server)
        test_info(server)
        test_generate(server)  # it lives
    test_events(options.bin, options.loads)
    test_lost_events(options.bin)
    test_models(options.bin)


if __name__ == "__main__":
    main()
