// Bounds and rules of a model's config.
#ifndef TRIPTYCH_ENGINE_MODEL_VALIDATE_CONFIG_H_
#define TRIPTYCH_ENGINE_MODEL_VALIDATE_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/range.h"
#include "engine/model/config.h"

namespace triptych {

// Allowed values of a config's numbers, by what they count or multiply.
namespace config_limits {
inline constexpr Range<int64_t> kVocabulary{1, 1 << 24};
inline constexpr Range<int64_t> kLayers{1, 1024};
inline constexpr Range<int64_t> kPositions{2, 1 << 24};
inline constexpr Range<int64_t> kWidth{1, 1 << 20};           // elements of one dimension
inline constexpr Range<int64_t> kOptionalWindow{0, 1 << 24};  // 0: there is none
inline constexpr Range<int64_t> kOptionalWidth{0, 1 << 20};   // 0: there is none
inline constexpr Range<int64_t> kExperts{1, 4096};            // of one layer
inline constexpr int64_t kAllExperts = 1 << 16;               // of all layers
inline constexpr Range<double> kFactor{0, 1e6, /*above_low=*/true};
inline constexpr Range<double> kEpsilon{0, 1, /*above_low=*/true};
inline constexpr Range<double> kRopeTheta{0, 1e12, /*above_low=*/true};
inline constexpr Range<double> kRopeFactor{1e-18, 1e18};
// Positions times width of a table of positions that is computed at load: 2^18 positions of 128,
// 1 GB at most. No file bounds it, and two numbers of a config would take any amount of memory.
// Only a cache with more positions extends a served model's rotary table beyond it.
inline constexpr int64_t kPositionTable = int64_t{1} << 25;
}  // namespace config_limits

// The file that a config comes from, for messages.
struct ConfigOrigin {
  std::string file;
  // The file's names of fields, by their names in ModelConfig, where the two differ.
  std::map<std::string, std::string> names = {};
};

// Checks every bound and every rule of a config. Throws LoadError, naming the file, the field, its
// value and what is allowed. A config that passes is served, and is read back as it is written.
void Validate(const ModelConfig& config, const ConfigOrigin& origin);

// "allowed: a list of ...", for messages about training_texts.
std::string AllowedTrainingTexts();

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_VALIDATE_CONFIG_H_
