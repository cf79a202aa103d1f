// Writer of a checkpoint's directory.
#ifndef TRIPTYCH_ENGINE_DECODER_WRITE_WEIGHTS_H_
#define TRIPTYCH_ENGINE_DECODER_WRITE_WEIGHTS_H_

#include <filesystem>
#include <map>
#include <string>

#include "engine/checkpoint/config/config_file.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// The model card in a checkpoint's directory.
inline constexpr const char* kCardFile = "README.md";

// Whether `model.safetensors` is there, or an index of shards.
bool HoldsModel(const std::filesystem::path& directory);

// Writes `config.json`; `model.safetensors` in the config's torch_dtype, or in integers as its
// quantization says; and, unless `card` is empty, the model card `README.md`. `others`: texts of
// further files, by file name. Throws std::runtime_error. REQUIRES: as checkpoint::ToJson for
// `form`; tensors have the same names in both forms.
//
// An absent directory is made under another name and renamed: it appears whole or not at all. In a
// directory that exists (empty, a mount, a symbolic link to one) each file appears whole or not at
// all, config.json last: without it there is no model.
void SaveCheckpoint(const std::filesystem::path& directory, const ModelConfig& config,
                    const Weights& weights, const std::string& card = "",
                    const std::map<std::string, std::string>& others = {},
                    checkpoint::ConfigForm form = checkpoint::ConfigForm::kTriptych);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_DECODER_WRITE_WEIGHTS_H_
