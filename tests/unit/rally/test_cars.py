"""Rally's own loader and provisioner read the pack's cars; the pack's nodes get the same values from them."""

import zipfile
from pathlib import Path

import pytest
from esrally.mechanic import provisioner, team

from esrally_ebs import node
from esrally_ebs.errors import PlanError
from esrally_ebs.rally.cars import VARIABLES, car_names, load_settings, team_path
from esrally_ebs.units import GIB, KIB, MIB


def test_every_car_makes_a_node_on_its_own() -> None:
    least = node.page_cache_bytes(load_settings(["defaults"], {}))
    assert all(node.page_cache_bytes(load_settings([name], {})) >= least > 0 for name in car_names())


def test_every_car_says_what_it_is_for() -> None:
    loader = team.CarLoader(str(team_path()))
    assert all(loader.load_car(name).description for name in car_names())


def test_the_limit_is_heap_and_overhead_and_page_cache() -> None:
    settings = load_settings(["defaults"], {"heap_size": "1g", "page_cache": "100m"})
    assert settings.memory_bytes == 1 * GIB + 300 * MIB + 100 * MIB
    assert node.page_cache_bytes(settings) == 100 * MIB


def test_the_order_of_heap_and_memory_cars_does_not_matter() -> None:
    assert load_settings(["4gmemory", "1gheap"], {}) == load_settings(["1gheap", "4gmemory"], {})


def test_a_parameter_outranks_every_car() -> None:
    settings = load_settings(["defaults", "1gheap", "niofs"], {"heap_size": "700m", "store_type": "mmapfs"})
    assert (settings.heap_bytes, settings.store_type) == (700 * MIB, "mmapfs")


def test_values_from_the_command_line_and_from_a_plan_mean_the_same() -> None:
    from_cli = {"cpus": "1", "indices.requests.cache.enable": "false", "thread_pool.search.size": "4"}
    from_plan = {"cpus": 1, "indices.requests.cache.enable": False, "thread_pool.search.size": 4}
    assert load_settings(["defaults"], from_cli) == load_settings(["defaults"], from_plan)


def test_a_dotted_parameter_is_an_elasticsearch_setting_and_rallys_own_are_not() -> None:
    settings = load_settings(["defaults"], {"indices.queries.cache.size": "5%"})
    assert settings.es_settings == {"indices.queries.cache.size": "5%"}


def test_readahead_is_the_plans_unless_a_car_says_otherwise() -> None:
    assert load_settings(["defaults"], {}).readahead_bytes is None
    assert load_settings(["defaults", "4kreadahead"], {}).readahead_bytes == 4 * KIB


@pytest.mark.parametrize(
    ("names", "params", "message"),
    [
        (["huge"], {}, "car 'huge': unknown; the cars are 16gmemory, 1gheap"),
        ([], {}, "car: none given"),
        (["defaults"], {"heap": "1g"}, "car variable 'heap': unknown; the variables are heap_size"),
        (["defaults"], {"heap_size": "large"}, "car variable heap_size: 'large' is not a size"),
        (["defaults"], {"heap_size": 0.5}, "car variable heap_size: no node starts without a heap"),
        (["defaults"], {"heap_size": -5}, "car variable heap_size: '-5' is not a size"),
        (["defaults"], {"readahead": True}, "car variable readahead: 'True' is not a size"),
        (["defaults"], {"cpus": "-1"}, "car variable cpus: '-1' is not a number"),
        (["defaults"], {"cpus": "1024"}, "car variable cpus: '1024' is not a number"),
        (["defaults"], {"cpus": "nan"}, "car variable cpus: 'nan' is not a number"),
        (["defaults"], {"cpus": "many"}, "car variable cpus: 'many' is not a number"),
        (["defaults"], {"store_type": "simplefs"}, "'simplefs' is not one of hybridfs, mmapfs, niofs"),
        (["2gmemory"], {"heap_size": "2g"}, "2.0 GiB is too little for a heap of 2.0 GiB"),
        (["2gmemory"], {"page_cache": "1g"}, "one follows from the other"),
        (["defaults"], {"data_paths": "/mnt/gp3"}, "the arm's volume decides it"),
        (["defaults"], {"http.port": 9200}, "the pack sets it itself"),
        (["defaults"], {"http.bind_host": "0.0.0.0"}, "the pack sets it itself"),
        (["defaults"], {"transport.profiles.x.bind_host": "0.0.0.0"}, "the pack sets it itself"),
        (["defaults"], {"node.attr.a": "1\n2"}, "line break"),
        (["defaults"], {"readahead": "3000"}, "no whole pages"),
        (["defaults"], {"a=b.c": 1}, "no name of a setting"),
        (["defaults"], {"Indices.memory": 1}, "no name of a setting"),
        (["defaults"], {"indices.": 1}, "no name of a setting"),
    ],
)
def test_what_no_node_can_start_with_is_refused_in_one_line(
    names: list[str], params: dict[str, object], message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        load_settings(names, params)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_variables_are_explained_in_the_base_car() -> None:
    lines = (team_path() / "cars" / "v1" / "node" / "config.ini").read_text().splitlines()
    for name in VARIABLES:
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{name}="))
        assert name == "heap_size" or lines[at - 1].startswith("#")


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    """The least that Rally's installer takes for an Elasticsearch distribution."""
    path = tmp_path / "elasticsearch-8.8.2.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("elasticsearch-8.8.2/config/elasticsearch.yml", "from: the distribution\n")
    return path


def install(distribution: Path, tmp_path: Path, names: list[str], params: dict[str, str]) -> Path:
    """What Rally's from-distribution pipeline does before a launch; gives the node's config directory."""
    car = team.load_car(str(team_path()), names, params)
    installer = provisioner.ElasticsearchInstaller(
        car,
        java_home=None,
        node_name="rally-node-0",
        cluster_name="rally-benchmark",
        node_root_dir=str(tmp_path / "node"),
        all_node_ips=["127.0.0.1"],
        all_node_names=["rally-node-0"],
        ip="127.0.0.1",
        http_port=39200,
    )
    prepared = provisioner.BareProvisioner(installer, [], "8.8.2").prepare(
        {"elasticsearch": str(distribution)}
    )
    assert prepared.data_paths == [params.get("data_paths", f"{prepared.binary_path}/data")]
    return Path(prepared.binary_path) / "config"


def test_rallys_provisioner_puts_the_data_path_on_the_given_mount(distribution: Path, tmp_path: Path) -> None:
    config = install(distribution, tmp_path, ["defaults"], {"data_paths": "/mnt/gp3/elasticsearch"})
    lines = (config / "elasticsearch.yml").read_text().splitlines()
    assert "path.data: /mnt/gp3/elasticsearch" in lines
    assert {"discovery.type: single-node", "index.store.type: hybridfs", "http.port: 39200"} <= set(lines)
    assert "from: the distribution" not in lines


def test_rallys_provisioner_gives_heap_store_and_settings_as_the_packs_own_nodes_do(
    distribution: Path, tmp_path: Path
) -> None:
    config = install(
        distribution,
        tmp_path,
        ["1gheap", "niofs"],
        {"indices.queries.cache.size": "5%", "java_opts": "-Xss2m"},
    )
    options = (config / "jvm.options").read_text().splitlines()
    assert {"-Xms1g", "-Xmx1g", "-Xss2m"} <= set(options)
    lines = (config / "elasticsearch.yml").read_text().splitlines()
    assert {"index.store.type: niofs", 'indices.queries.cache.size: "5%"'} <= set(lines)
    # none of Rally's own variables is taken for a setting
    assert not [line for line in lines if line.startswith(("runtime.", "jdk.", "build."))]


def test_rally_finds_the_distributions_url_in_the_car() -> None:
    variables = team.load_car(str(team_path()), ["defaults"]).variables
    assert variables["jdk.bundled.release_url"].endswith(
        "elasticsearch-{{VERSION}}-{{OSNAME}}-{{ARCH}}.tar.gz"
    )
