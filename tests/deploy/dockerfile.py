# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile as its tests read it: stages, their instructions, and what its build context is."""
import fnmatch
import os
import re
import shutil

import support

FILE = os.path.join(support.DEPLOY, "containers/Dockerfile")


class Stage:
    """One stage: its base (an image or another stage) and its instructions, [(word, rest)]."""

    def __init__(self, base, instructions):
        self.base = base
        self.instructions = instructions

    def of(self, word):
        return [rest for name, rest in self.instructions if name == word]


def stages(arguments=()):
    """{name: Stage}, with ARGs of the file replaced by their defaults or by `arguments`."""
    with open(FILE) as file:
        lines = [line for line in file.read().splitlines() if not re.match(r"\s*#", line)]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    values, found, current = {}, {}, None
    for line in filter(None, (line.strip() for line in text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "ARG":
            name, _, default = rest.partition("=")
            values[name] = dict(arguments).get(name, default)
        elif word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], rest)).groups()
            current = found[name] = Stage(base, [])
        else:
            current.instructions.append((word, rest.strip()))
    return found


def chain(name, arguments=()):
    """A stage's instructions with those of the stages it is based on in front, and the image they all begin with."""
    known = stages(arguments)
    instructions, image = [], name
    while image in known:
        instructions = known[image].instructions + instructions
        image = known[image].base
    return instructions, image


def copy_context(folder):
    """Copies into `folder` what `docker build .` sends to the engine: the clone without what Dockerfile.dockerignore names."""
    with open(FILE + ".dockerignore") as file:
        patterns = [line.strip() for line in file if line.strip() and not line.startswith("#")]

    def ignored(parent, names):
        inside = os.path.relpath(parent, support.SOURCE)
        paths = {name: os.path.normpath(os.path.join(inside, name)) for name in names}
        return {name for name, path in paths.items()
                if any(fnmatch.fnmatch(path, pattern) or (pattern.startswith("**/") and fnmatch.fnmatch(name, pattern[3:])) for pattern in patterns)}
    shutil.copytree(support.SOURCE, folder, symlinks=True, ignore=ignored)


def shell_script(instructions, context):
    """Carries the instructions out as root in a root folder that has the build context at `context`. Raises for one that it
    does not know: nothing is left out."""
    shell, script = ["/bin/sh", "-c"], ["set -e"]
    for word, rest in instructions:
        if word == "SHELL":
            shell = [part.strip().strip('"') for part in rest.strip("[]").split(",")]
        elif word == "WORKDIR":
            script += [f"mkdir -p {rest}", f"cd {rest}"]
        elif word == "ENV":
            script.append("export " + rest)
        elif word == "COPY" and not rest.startswith("--"):
            *sources, target = rest.split()
            if sources == ["."]:
                script.append(f"cp -a {context}/. {target}")
            else:
                script += [f"mkdir -p {target}", "cp -a " + " ".join(f"{context}/{source}" for source in sources) + f" {target}"]
        elif word == "RUN":
            command = re.sub(r"^(--mount=\S+\s+)+", "", rest).replace("'", "'\\''")
            script += [f"echo 'RUN {command}'", " ".join(shell) + f" '{command}'"]
        else:
            raise ValueError(f"{word} {rest}: not known here")
    return "\n".join(script) + "\n"
