// What ggml's Vulkan back end names of VK_EXT_layer_settings, for headers older than 1.3.272 (Debian 12 has 1.3.239).
// The layout and the numbers are those of the Vulkan specification. A loader that does not know the structure skips it.
// vulkan.hpp is not included: ggml includes it, after the macros that choose how it finds functions.
#pragma once
#include <cstdint>
#include <vector>

namespace vk {
enum class LayerSettingTypeEXT : int { eBool32 = 0 };

struct LayerSettingEXT {
    const char *        layer_name;
    const char *        setting_name;
    LayerSettingTypeEXT type;
    uint32_t            value_count;
    const void *        values;
};

// Contains pointers into the settings: they must outlive it.
struct LayerSettingsCreateInfoEXT {
    uint32_t                structure_type = 1000496000; // VK_STRUCTURE_TYPE_LAYER_SETTINGS_CREATE_INFO_EXT
    const void *            next           = nullptr;
    uint32_t                setting_count;
    const LayerSettingEXT * settings;

    LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> & all)
        : setting_count(uint32_t(all.size())), settings(all.data()) {}
};
} // namespace vk
