#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Dockerfile and compose.yaml: linted, valid by their schema, and with arguments that the programs of this build take."""
import os
import tempfile
import unittest

import dockerfile
import programs
import support

TOOLS = support.tools()
import yaml  # noqa: E402  (one of the tools)

CONTAINERS = os.path.join(support.DEPLOY, "containers")


def tool(name, *arguments):
    result = support.run(["/usr/bin/python3", os.path.join(TOOLS, "python/bin", name), *arguments],
                         env={**support.environment(), "PYTHONPATH": os.path.join(TOOLS, "python")})
    return result.returncode, result.stdout + result.stderr


def image_variables():
    """What ENV in the Dockerfile's stages sets."""
    variables = {}
    with open(os.path.join(CONTAINERS, "Dockerfile")) as lines:
        for line in lines:
            if line.startswith("ENV "):
                variables.update(pair.split("=", 1) for pair in line[4:].split())
    return {name: value for name, value in variables.items() if name.startswith("BATON_")}


class DockerfileTest(unittest.TestCase):
    def lint(self, file):
        result = support.run([os.path.join(TOOLS, "python/bin/hadolint"), file])
        return result.stdout + result.stderr

    def test_hadolint(self):
        self.assertEqual(self.lint(os.path.join(CONTAINERS, "Dockerfile")), "")

    def test_hadolint_finds_mistakes(self):
        with open(os.path.join(support.BUILD, "Dockerfile.bad"), "w") as bad:
            bad.write("FROM debian\nRUN cd /tmp && apt-get install x\n")
        self.addCleanup(os.remove, bad.name)
        self.assertIn("DL3006", self.lint(bad.name))

    def test_runs_as_nobody_special(self):
        with open(os.path.join(CONTAINERS, "Dockerfile")) as file:
            lines = file.read().splitlines()
        final = lines[lines.index("FROM ${DEBIAN_IMAGE} AS runtime"):]
        self.assertEqual([line for line in final if line.startswith("USER")], ["USER 10001:10001"])
        self.assertTrue([line for line in final if line.startswith("HEALTHCHECK") and line.endswith('CMD ["baton", "status"]')])

    def test_the_build_is_what_its_test_carries_out(self):
        """image_build_test.py reads the file as this does; it takes an hour, so it is not run every day."""
        for variant in ("cpu", "cuda"):
            instructions, image = dockerfile.chain("build", {"VARIANT": variant})
            self.assertEqual(image, "docker.io/library/debian:12-slim")
            script = dockerfile.shell_script(instructions, "/context")
            self.assertEqual(support.run(["bash", "-n", "-c", script]).stderr, "")
            self.assertLess(script.index("deploy/install_dependencies"), script.index("cp -a /context/. ."))
            self.assertIn("cpack -G DEB", script)
            self.assertEqual("nvidia-cuda-nvcc" in script, variant == "cuda")
        with self.assertRaisesRegex(ValueError, "ADD x"):  # An instruction that is not known is no step to leave out.
            dockerfile.shell_script([("ADD", "x y")], "/context")

    def test_the_context_has_what_the_build_needs_and_no_more(self):
        with tempfile.TemporaryDirectory() as folder:
            context = os.path.join(folder, "context")
            dockerfile.copy_context(context)
            there = set(os.listdir(context))
            self.assertLessEqual({"CMakeLists.txt", "CMakePresets.json", "LICENSE", "common", "deploy", "proto"}, there)
            self.assertEqual({".git", "build", "tests"} & there, set())

    def test_its_environment_is_for_every_program(self):
        variables = image_variables()
        self.assertIn("BATON_STATUS", variables)
        workers = {**variables, "BATON_DEVICE": "cpu"}
        for program in ("baton_prefill_worker", "baton_decode_worker"):
            self.assertIsNone(programs.problem(program, [], workers))
        del variables["BATON_DEVICE"]  # Not the router's: it computes nothing.
        self.assertIsNone(programs.problem("baton_router", [], variables))


class ComposeTest(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(CONTAINERS, "compose.yaml")
        with open(self.path) as file:
            self.compose = yaml.safe_load(file)

    def test_schema(self):
        code, output = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", self.path)
        self.assertEqual(code, 0, output)
        rules = "{extends: default, rules: {line-length: {max: 130}, document-start: disable, braces: disable}}"
        self.assertEqual(tool("yamllint", "-d", rules, self.path), (0, ""))

    def test_schema_finds_mistakes(self):
        self.compose["services"]["router"]["imagee"] = "x"
        with open(os.path.join(support.BUILD, "compose.bad.yaml"), "w") as bad:
            yaml.safe_dump(self.compose, bad)
        self.addCleanup(os.remove, bad.name)
        self.assertNotEqual(tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", bad.name)[0], 0)

    def test_programs_take_their_settings(self):
        services = self.compose["services"]
        self.assertEqual({name: service.get("scale", 1) for name, service in services.items()}, {"router": 1, "prefill": 2, "decode": 2})
        image = {name: value for name, value in image_variables().items() if name != "BATON_DEVICE"}
        for name, service in services.items():
            program, *arguments = service["command"]
            self.assertIsNone(programs.problem(program, arguments, {**image, **service["environment"]}), name)
            self.assertGreaterEqual(support.seconds(service["stop_grace_period"]), support.seconds(service["environment"]["BATON_GRACE"]) + 10)
            self.assertTrue(service["read_only"] and service["cap_drop"] == ["ALL"], name)
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), port)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BIN, "baton_router")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
