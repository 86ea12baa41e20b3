"""Print this project's dependencies, one a line, with those of the extras named: pip installs them before the project.

usage: list.py [EXTRA...]
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
extras = [requirement for extra in sys.argv[1:] for requirement in project["optional-dependencies"][extra]]
for requirement in project["dependencies"] + extras:
    print(requirement)
