"""Where the registry of tests comes from, and how to log in to it."""

from klet.images.docker_config import RegistryLogin, parse_docker_config_json
from klet.testing.registry.process import ImageRegistry, find_registry


def test_what_is_there_is_not_fetched_again(tmp_path):
    program = tmp_path / "docker-registry" / "usr" / "bin" / "docker-registry"
    program.parent.mkdir(parents=True)
    program.touch()
    assert find_registry(tmp_path) == program


def test_its_login_is_one_of_docker():
    config = ImageRegistry("127.0.0.1:5000").docker_config(password="p")
    assert parse_docker_config_json(config) == {"127.0.0.1:5000": RegistryLogin("user", "p")}
