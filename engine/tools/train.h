// Training of a decoder on a text file.
#ifndef TRIPTYCH_ENGINE_TOOLS_TRAIN_H_
#define TRIPTYCH_ENGINE_TOOLS_TRAIN_H_

#include "engine/tools/train_options.h"

namespace triptych::tools {

// Trains float32 weights with AdamW and shows progress on stderr. Writes a checkpoint and its card
// to `output`, with the weights of the lowest held-out loss, or the last weights if nothing is held
// out. The config names the text. REQUIRES: no model and no card in `output`, except those of an
// interrupted run.
//
// During the run, `output` also has a state to resume from. The same command resumes an interrupted
// run with the same result. It refuses if anything that the result depends on is different:
// options, text, teachers, number of compute threads. Throws LoadError or std::runtime_error.
void Train(const TrainOptions& options);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_TRAIN_H_
