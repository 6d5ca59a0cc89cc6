#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Answers under JSON Schemas: each that ends by itself parses and is valid by the jsonschema package, from a model that knows
nothing. With --model FILE [--seeds N] the same with a real one; prints what it counted."""
import argparse
import concurrent.futures
import json
import os
import shutil
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import cluster
import support
from response_schemas import SCHEMAS

_TOOLS = support.tools()
try:
    import jsonschema
except ImportError as error:
    support.skip(f"{_TOOLS}: {error}; tests/deploy/fetch_tools fetches it")

_MODEL, _SEEDS = None, 2


class ResponseFormatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
            support.skip("the programs are not built")
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.cluster = cls.enterClassContext(cluster.Cluster(folder, _MODEL or support.tiny_model(folder)))
        cls.router = cls.cluster.start_router("router")
        cls.cluster.start_worker("prefill-1", "prefill")
        cls.cluster.start_worker("decode-1", "decode")
        cls.cluster.wait_ready("router")

    def ask(self, **body):
        request = urllib.request.Request(f"http://{self.cluster.http['router']}/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10 * support.PATIENCE) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def answers(self, name, schema, seed, **more):
        body = {"messages": [{"role": "user", "content": f"Write JSON: {name}."}], "seed": seed, "temperature": 1, "max_tokens": 600,
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}}
        answer = self.ask(**{**body, **more})
        return [(choice["message"]["content"], choice["finish_reason"]) for choice in answer["choices"]] if "choices" in answer else answer

    def test_answers_are_valid(self):
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        validators = {name: jsonschema.Draft202012Validator(schema, format_checker=checker) for name, schema in SCHEMAS.items()}
        stopped, cut = 0, []
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            futures = {pool.submit(self.answers, name, schema, seed): (name, seed) for name, schema in SCHEMAS.items() for seed in range(_SEEDS)}
            for future in concurrent.futures.as_completed(futures):
                name, seed = futures[future]
                with self.subTest(schema=name, seed=seed):
                    for text, reason in future.result():
                        if reason != "stop":
                            cut.append(name)
                            continue
                        validators[name].validate(json.loads(text))
                        stopped += 1
        print(f"{stopped} answers are valid, {len(cut)} were cut at max_tokens: {sorted(set(cut))}")
        self.assertGreater(stopped, len(SCHEMAS) * _SEEDS * 3 // 4)

    def test_choices_and_the_rest_of_sampling(self):
        schema = SCHEMAS["person"]
        for more in ({"n": 4}, {"temperature": 0}, {"logprobs": True, "top_logprobs": 3}, {"top_p": 0.5, "top_k": 20, "repetition_penalty": 1.3},
                     {"min_tokens": 200}, {"logit_bias": {"5": 100, "300": 100}}, {"ignore_eos": True}):
            with self.subTest(more=more):
                for text, reason in self.answers("person", schema, 3, **more):
                    if reason == "stop":
                        jsonschema.validate(json.loads(text), schema)

    def test_the_same_seed_gives_the_same_answer(self):
        first, second = (self.answers("invoice", SCHEMAS["invoice"], 5) for _ in range(2))
        self.assertEqual(first, second)

    def test_json_mode(self):
        for seed in range(3):
            answer = self.ask(messages=[{"role": "user", "content": "JSON"}], seed=seed, max_tokens=300, response_format={"type": "json_object"})
            choice = answer["choices"][0]
            if choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
            else:
                self.assertEqual(choice["message"]["content"][:1], "{")

    def test_refusals(self):
        for schema, place in (({"type": "object", "properties": {"a": {"not": {}}}}, "#/properties/a"), ({"type": "array", "uniqueItems": True}, "#")):
            error = self.answers("x", schema, 1)["error"]
            self.assertEqual((error["param"], error["type"]), ("response_format", "invalid_request_error"))
            self.assertIn(place, error["message"])
        for schema in ({"type": "array", "uniqueItems": True, "items": {"type": "boolean"}, "maxItems": 2},):
            answer = self.ask(messages=[{"role": "user", "content": "x"}], max_tokens=30, response_format={
                "type": "json_schema", "json_schema": {"name": "x", "strict": False, "schema": schema}})
            self.assertIn("choices", answer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    known, rest = parser.parse_known_args()
    _MODEL, _SEEDS = known.model, known.seeds
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
