"""Rally's install hook of every car: car variables that are Elasticsearch settings go to elasticsearch.yml.

A variable with a dot in its name is a setting, as for the pack's own nodes. Rally loads this file itself.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esrally_ebs.rally.cars import is_setting


def write_settings(config_names: Sequence[str], variables: Mapping[str, Any], **kwargs: Any) -> None:
    """Append the settings among ``variables`` to the rendered configuration."""
    path = Path(variables["install_root_path"]) / "config" / "elasticsearch.yml"
    with path.open("a", encoding="utf-8") as file:
        file.writelines(
            f"{name}: {json.dumps(variables[name])}\n" for name in sorted(filter(is_setting, variables))
        )


def register(handler: Any) -> None:
    """Called by Rally when it loads the car."""
    handler.register("post_install", write_settings)
