#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's own Python client against a cluster that asks for keys: answers, streams, errors, and who may not."""
import os
import shutil
import ssl
import tempfile
import unittest

import cluster
import support

_TOOLS = support.tools()
try:
    import openai
except ImportError as error:
    support.skip(f"{_TOOLS}: {error}; tests/deploy/fetch_tools fetches the client")

_CLIENT_KEY, _WORKER_KEY = "client-0123456789", "worker-0123456789"
_CHAT = [{"role": "user", "content": "hello"}]


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(os.path.join(support.BUILD, "tests/write_tiny_model")):
            support.skip("the programs are not built")
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        keys, worker_key = os.path.join(folder, "keys"), os.path.join(folder, "worker.key")
        with open(keys, "w") as file:
            file.write(f"alice {_CLIENT_KEY}\nworkers {_WORKER_KEY} worker\n")
        with open(worker_key, "w") as file:
            file.write(_WORKER_KEY + "\n")
        cls.cluster = cls.enterClassContext(
            cluster.Cluster(folder, support.tiny_model(folder), [f"--api-keys={keys}"], [f"--api-key-file={worker_key}"]))
        cls.router = cls.cluster.start_router("router")
        cls.cluster.start_worker("prefill-1", "prefill")
        cls.cluster.start_worker("decode-1", "decode")
        cls.cluster.wait_ready("router")
        cls.client = cls.connect(_CLIENT_KEY)
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def connect(cls, key):
        return openai.OpenAI(base_url=f"http://{cls.cluster.http['router']}/v1", api_key=key, max_retries=0, timeout=support.PATIENCE)

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([model.id for model in models], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").id, "tiny")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_completions(self):
        arguments = {"model": "tiny", "prompt": "abc", "max_tokens": 8, "temperature": 0, "seed": 7}
        whole = self.client.completions.create(**arguments, logprobs=2)
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)
        self.assertEqual(len(whole.choices[0].logprobs.tokens), whole.usage.completion_tokens)
        self.assertIn(whole.choices[0].finish_reason, ("stop", "length"))
        chunks = list(self.client.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks if chunk.choices), whole.choices[0].text)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(chunks[-1].choices, [])
        echoed = self.client.completions.create(**arguments, echo=True)
        self.assertEqual(echoed.choices[0].text, "abc" + whole.choices[0].text)
        ids = self.client.completions.create(**{**arguments, "prompt": [[5, 6], [7]]}, n=2)
        self.assertEqual([choice.index for choice in ids.choices], [0, 1, 2, 3])

    def test_what_a_prompt_scores(self):
        """B37, as evaluation harnesses use it: before and behind a warm cache, entry i is what it would be as an answer."""
        ids = list(range(5, 45))
        scored = [self.client.completions.create(model="tiny", prompt=ids, echo=True, logprobs=1, max_tokens=most, temperature=0).choices[0].logprobs
                  for most in (0, 1)]
        self.assertEqual([len(logprobs.token_logprobs) for logprobs in scored], [40, 41])
        self.assertIsNone(scored[0].token_logprobs[0])
        self.assertIsNone(scored[0].top_logprobs[0])
        self.assertEqual(scored[0].token_logprobs, scored[1].token_logprobs[:40])
        for i in (1, 16, 17, 39):
            answer = self.client.completions.create(model="tiny", prompt=ids[:i], logprobs=1, max_tokens=1, temperature=0,
                                                    logit_bias={str(ids[i]): 100}).choices[0].logprobs
            self.assertEqual(scored[0].token_logprobs[i], answer.token_logprobs[0], i)
            self.assertEqual(scored[0].top_logprobs[i], answer.top_logprobs[0], i)

    def test_chat(self):
        arguments = {"model": "tiny", "messages": _CHAT, "max_completion_tokens": 8, "temperature": 0, "seed": 7}
        whole = self.client.chat.completions.create(**arguments, logprobs=True, top_logprobs=2)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(len(whole.choices[0].logprobs.content), whole.usage.completion_tokens)
        self.assertGreaterEqual(whole.usage.prompt_tokens_details.cached_tokens, 0)
        chunks = list(self.client.chat.completions.create(**arguments, stream=True))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), whole.choices[0].message.content)
        self.assertEqual(chunks[-1].choices[0].finish_reason, whole.choices[0].finish_reason)

    def test_responses(self):
        arguments = {"model": "tiny", "input": "Say something.", "instructions": "Be brief.", "max_output_tokens": 8, "temperature": 0}
        whole = self.client.responses.create(**arguments)
        self.assertEqual((whole.status, whole.usage.output_tokens), ("incomplete", 8))
        self.assertEqual(whole.incomplete_details.reason, "max_output_tokens")
        chat = self.client.chat.completions.create(model="tiny", max_completion_tokens=8, temperature=0, messages=[
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say something."}])
        self.assertEqual(whole.output_text, chat.choices[0].message.content)
        events = list(self.client.responses.create(**arguments, stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual("".join(event.delta for event in events if event.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual(events[-1].type, "response.incomplete")
        # The client puts the answer together, and checks each event; it wants an answer that ends by itself.
        stop = whole.output_text[-2:]
        with self.client.responses.stream(**arguments, extra_body={"stop": stop}) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_text, whole.output_text.split(stop)[0])
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.responses.create(**arguments, previous_response_id="resp_1")
        self.assertEqual(raised.exception.param, "previous_response_id")

    def test_a_stream_that_is_closed_ends(self):
        with self.client.completions.create(model="tiny", prompt="abc", max_tokens=400, stream=True,
                                            extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        support.eventually(lambda: cluster.metric(self.router.status, "baton_requests", state="running") == 0, "the request ends")

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="tiny", prompt="abc", temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        self.assertIn("-1", caught.exception.message)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="tiny", prompt="abc", echo=True, logprobs=1, n=2)
        self.assertEqual(caught.exception.param, "n")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="other", messages=_CHAT)
        self.assertEqual(caught.exception.code, "model_not_found")

    def test_keys(self):
        for key, error in (("nobody-0123456789", openai.AuthenticationError), (_WORKER_KEY, openai.PermissionDeniedError)):
            with self.connect(key) as client:
                with self.assertRaises(error):
                    client.models.list()
                with self.assertRaises(error):
                    client.chat.completions.create(model="tiny", messages=_CHAT)
        with self.assertRaises(openai.AuthenticationError) as caught:
            self.client.with_options(api_key="nobody-0123456789").models.list()
        self.assertEqual(caught.exception.code, "invalid_api_key")
        for process in self.cluster.processes.values():
            for key in (_CLIENT_KEY, _WORKER_KEY, "nobody-0123456789"):
                self.assertNotIn(key, process.output())
        self.assertIn("key=alice", self.router.output())


class HttpsTest(unittest.TestCase):
    def test_by_tls(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        files = support.certificates()
        registry = f"127.0.0.1:{cluster.free_ports(1)[0]}"
        secure = self.enterContext(cluster.Cluster(folder, support.tiny_model(folder), [
            f"--tls-cert={files}/tls.crt", f"--tls-key={files}/tls.key", f"--registry={registry}"]))
        secure.start_router("router")
        secure.grpc["router"] = registry  # For the workers.
        secure.start_worker("prefill-1", "prefill")
        secure.start_worker("decode-1", "decode")
        secure.wait_ready("router")
        url = f"https://{secure.http['router']}/v1"
        trust = ssl.create_default_context(cafile=f"{files}/ca.crt")
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=support.PATIENCE,
                           http_client=openai.DefaultHttpxClient(verify=trust)) as client:
            whole = client.chat.completions.create(model="tiny", messages=_CHAT, max_completion_tokens=8, temperature=0)
            chunks = list(client.chat.completions.create(model="tiny", messages=_CHAT, max_completion_tokens=8, temperature=0, stream=True))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), whole.choices[0].message.content)
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=support.PATIENCE) as stranger:
            with self.assertRaises(openai.APIConnectionError):
                stranger.models.list()


if __name__ == "__main__":
    unittest.main(verbosity=2)
