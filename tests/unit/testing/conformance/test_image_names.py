import pytest

from klet.testing.conformance.image_names import ImageUnknown, find_image_name, read_image_names

MANIFEST = """
	initRegistry = RegistryList{
		PromoterE2eRegistry:      "registry.k8s.io/e2e-test-images",
		GcRegistry:               "registry.k8s.io",
	}

func initImageConfigs(list RegistryList) (map[ImageID]Config, map[ImageID]Config) {
	configs := map[ImageID]Config{}
	configs[BusyBox] = Config{list.PromoterE2eRegistry, "busybox", "1.37.0-1"}
	configs[Pause] = Config{list.GcRegistry, "pause", "3.10.1"}
	configs[Strange] = Config{list.NoRegistry, "x", "1"}
"""


def test_names_are_made_of_registry_name_and_tag():
    assert read_image_names(MANIFEST) == {
        "BusyBox": "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
        "Pause": "registry.k8s.io/pause:3.10.1",
    }


def test_an_image_that_upstream_no_longer_has_is_named():
    with pytest.raises(ImageUnknown, match="no image Nginx"):
        find_image_name(read_image_names(MANIFEST), "Nginx")
