// Description of a loaded model.
#ifndef TRIPTYCH_SERVER_CORE_MODEL_INFO_H_
#define TRIPTYCH_SERVER_CORE_MODEL_INFO_H_

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/serving/served_model.h"
#include "server/core/chat/chat_template.h"

namespace triptych::server {

// Constant once the model is loaded, so that every thread may read it. The Engine belongs to its
// own thread.
struct ModelInfo : serving::ServedModel {
  std::string config_json;                                 // `config` as config.json
  std::shared_ptr<const ChatTemplate> chat_template = {};  // null: chat is refused
  std::vector<std::string> own_chat_templates = {};        // names of the checkpoint's
  std::filesystem::path checkpoint = {};                   // absolute: a directory or a GGUF file
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_MODEL_INFO_H_
