#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Units, configuration and completion are what the programs of this build understand."""
import glob
import os
import re
import shlex
import shutil
import tempfile
import unittest

import programs
import support

UNITS = sorted(glob.glob(os.path.join(support.DEPLOY, "systemd", "*.service")))


def settings(unit):
    """[(key, value)] of a unit file."""
    with open(unit) as lines:
        return [tuple(line.strip().split("=", 1)) for line in lines if re.match(r"[A-Z]\w*=", line)]


class UnitTest(unittest.TestCase):
    def test_programs_take_their_arguments(self):
        self.assertEqual(len(UNITS), 3)
        for unit in UNITS:
            command = shlex.split(dict(settings(unit))["ExecStart"].replace("%H", "host").replace("%i", "1"))
            self.assertTrue(command[0].startswith("/usr/bin/"), command)
            arguments = [word.replace("/etc/baton/", os.path.join(support.DEPLOY, "config") + "/") for word in command[1:]]
            variables = dict(value.replace("%i", "1").split("=", 1) for key, value in settings(unit) if key == "Environment")
            self.assertIsNone(programs.problem(os.path.basename(command[0]), arguments, variables))

    def test_a_wrong_argument_is_found(self):
        self.assertIn("no-such-flag", programs.problem("baton_router", ["--no-such-flag=1"]))
        self.assertIn("BATON_NO_SUCH", programs.problem("baton_router", [], {"BATON_NO_SUCH": "1"}))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write("grase: 30s\n")
            config.flush()
            self.assertIn("grace", programs.problem("baton_router", ["--config", config.name]))

    def test_a_stop_leaves_time_to_drain(self):
        for unit in UNITS:
            config = re.search(r"--config /etc/baton/(\S+)", dict(settings(unit))["ExecStart"])[1]
            with open(os.path.join(support.DEPLOY, "config", config)) as text:
                grace = support.seconds(re.search(r"^grace: (\S+)", text.read(), re.M)[1])
            self.assertGreaterEqual(support.seconds(dict(settings(unit))["TimeoutStopSec"]), grace + 10, unit)

    def test_nobody_is_root(self):
        for unit in UNITS:
            keys = dict(settings(unit))
            self.assertEqual((keys["User"], keys["NoNewPrivileges"], keys["CapabilityBoundingSet"]), ("baton", "yes", ""), unit)

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "needs systemd-analyze")
    def test_units_verify(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in UNITS + glob.glob(os.path.join(support.DEPLOY, "systemd", "*.target")):
                with open(unit) as source, open(os.path.join(folder, os.path.basename(unit)), "w") as copy:
                    copy.write(source.read().replace("/usr/bin/", support.BIN + "/"))
            result = support.run(["systemd-analyze", "verify", "--man=no", *glob.glob(folder + "/*")])
            # About other units of this machine it may say what it likes.
            self.assertEqual([line for line in (result.stdout + result.stderr).splitlines() if "baton" in line], [])
            broken = os.path.join(folder, "baton-router.service")
            with open(broken, "a") as unit:
                unit.write("ProtectSistem=strict\n")
            result = support.run(["systemd-analyze", "verify", "--man=no", broken])
            self.assertIn("ProtectSistem", result.stdout + result.stderr)


class GuideTest(unittest.TestCase):
    def test_commands_have_flags_that_exist(self):
        """Of every line in the fenced blocks of the READMEs that runs one of the programs."""
        checked = 0
        for readme in ("deploy/README.md", "README.md"):
            with open(os.path.join(support.SOURCE, readme)) as file:
                blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", file.read(), re.M | re.S)
            for line in re.sub(r"\\\n\s*", " ", "\n".join(blocks)).splitlines():
                match = re.match(r"(?:[\d.]+\$ +|sudo )?(?:build/release/bin/)?(baton\w*)\s+(.*)", line)
                if not match:
                    continue
                program, words = match[1], match[2].split()
                command = [program] + ([] if program != "baton" else words[:2] if words[0] == "bench" else words[:1])
                result = support.run([os.path.join(support.BIN, command[0]), *command[1:], "--help"])
                self.assertEqual(result.returncode, 0, line)
                for flag in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", match[2]):
                    self.assertIn(f"\n  {flag}", result.stdout, line)
                    checked += 1
        self.assertGreaterEqual(checked, 20)


class CompletionTest(unittest.TestCase):
    def complete(self, line):
        script = ("source $0; COMP_WORDS=($1); if [[ $1 == *' ' ]]; then COMP_WORDS+=(''); fi; "
                  "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _baton; printf '%s\\n' \"${COMPREPLY[@]}\"")
        result = support.run(["bash", "-c", script, os.path.join(support.DEPLOY, "completion/baton.bash"), line],
                             env={**support.environment(), "PATH": support.BIN + ":/usr/bin:/bin"})
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash(self):
        self.assertEqual(set(self.complete("baton ")) >= {"serve", "status", "bench", "chat", "--help"}, True)
        self.assertEqual(self.complete("baton sta"), ["status"])
        self.assertEqual(self.complete("baton bench "), ["kv", "serve"])
        self.assertEqual(self.complete("baton role p-1 "), ["decode", "prefill"])
        self.assertIn("--prefill", self.complete("baton serve --p"))
        self.assertIn("--kv-memory-share", self.complete("baton_prefill_worker --kv"))
        self.assertTrue(set(self.complete("baton bench serve --")) > {"--help"})
        self.assertEqual(self.complete("baton serve --model /"), [])

    def ask(self, shell, script):
        """What a script says to `shell` about each of the lines; the completion file is $FILE."""
        file = os.path.join(support.DEPLOY, "completion", {"zsh": "_baton", "fish": "baton.fish"}[shell])
        self.assertEqual(support.run([shell, "-n", file]).stderr, "")
        home = self.enterContext(tempfile.TemporaryDirectory())  # Fish writes there.
        environment = {**support.environment(), "PATH": support.BIN + ":" + os.environ["PATH"], "FILE": file, "HOME": home}
        said = {}
        for line in ("baton ", "baton bench ", "baton role p-1 ", "baton serve --", "baton bench kv --", "baton_prefill_worker --kv"):
            result = support.run([shell, "-f" if shell == "zsh" else "--no-config", "-c", script], env={**environment, "LINE": line})
            self.assertEqual(result.stderr, "", line)
            said[line] = {word.split("\t")[0] for word in result.stdout.splitlines()}
        self.assertLessEqual({"serve", "bench", "role", "doctor"}, said["baton "])
        self.assertLessEqual({"kv", "serve"}, said["baton bench "])
        self.assertNotIn("chat", said["baton bench "])
        self.assertLessEqual({"decode", "prefill"}, said["baton role p-1 "])
        self.assertLessEqual({"--prefill", "--decode", "--config"}, said["baton serve --"])
        self.assertIn("--help", said["baton bench kv --"])
        self.assertLessEqual({"--kv-memory", "--kv-memory-share"}, said["baton_prefill_worker --kv"])

    @unittest.skipIf(shutil.which("zsh") is None, "needs zsh")
    def test_zsh(self):
        self.ask("zsh", "compadd() { shift; print -l -- $@ }; _files() { print files }; words=(${(s: :)LINE}); "
                        "if [[ $LINE == *' ' ]]; then words+=(''); fi; CURRENT=$#words; PREFIX=$words[-1]; source $FILE")

    @unittest.skipIf(shutil.which("fish") is None, "needs fish")
    def test_fish(self):
        self.ask("fish", "source $FILE; complete --do-complete $LINE")


class ManualTest(unittest.TestCase):
    def test_every_flag_has_its_place(self):
        with tempfile.TemporaryDirectory() as folder:
            result = support.run([os.path.join(support.DEPLOY, "package/make_man"), support.BIN, folder])
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            pages = glob.glob(folder + "/*/*.gz")
            self.assertGreaterEqual(len(pages), 12)
            for page in pages:
                text = support.run(["gzip", "-dc", page]).stdout
                self.assertIn(".SH NAME\nbaton", text)
                self.assertIn(".SH SYNOPSIS\nbaton", text)
                program = os.path.basename(page).split(".")[0]
                if program.startswith("baton_"):
                    flags = re.findall(r"^  (--[a-z-]+)", programs.help_text(program), re.M)
                    shown = [flag.replace("\\-", "-") for flag in re.findall(r"^\.B (\\-\\-[a-z\\-]+)", text, re.M)]
                    self.assertEqual(shown, flags)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(support.BIN, "baton_router")):
        support.skip("the programs are not built")
    unittest.main(verbosity=2)
