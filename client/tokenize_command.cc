#include <memory>
#include <string>
#include <vector>

#include "client/commands.h"
#include "client/flags.h"
#include "client/input.h"
#include "client/output.h"
#include "engine/base/quantities.h"
#include "engine/base/quoted.h"
#include "engine/base/table.h"

namespace triptych::client {
namespace {

struct TokenizeFlags {
  v1::TokenizeRequest request;  // without the text
  InputFlags input;
  bool json = false;
};

// The piece of each token. Throws Failure if the answer's offsets are inconsistent.
std::vector<std::string> PiecesOf(const v1::TokenizeResponse& response) {
  const std::string& all = response.pieces();
  std::vector<std::string> pieces(response.token_ids_size());
  bool whole = response.offsets_size() == response.token_ids_size();
  auto end = static_cast<int64_t>(all.size());
  for (int i = response.token_ids_size() - 1; whole && i >= 0; --i) {
    const int64_t begin = response.offsets(i);
    whole = 0 <= begin && begin <= end;
    if (whole) pieces[i] = all.substr(begin, end - begin);
    end = begin;
  }
  if (!whole) throw Failure("the server's answer has no consistent offset for each token");
  return pieces;
}

void Tokenize(const ServerFlags& server, const TokenizeFlags& flags) {
  v1::TokenizeRequest request = flags.request;
  request.set_text(ReadText(flags.input));
  request.set_parse_special_tokens(flags.input.parse_special_tokens);
  request.set_pieces(true);

  Session session(server);
  v1::TokenizeResponse response;
  session.Check(session.client().Tokenize(request, &response));
  if (flags.json) {
    PrintJson(response);
    return;
  }
  const std::vector<std::string> pieces = PiecesOf(response);
  Table table({{"token"}, {"offset"}, {"piece", Table::Align::kLeft}});
  for (int i = 0; i < response.token_ids_size(); ++i) {
    table.AddRow({std::to_string(response.token_ids(i)), FormatCount(response.offsets(i)),
                  Quoted(pieces[i])});
  }
  Print(table.ToString());
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command =
      app.add_subcommand("tokenize", "Tokens of a text, each with its offset and piece");
  const auto flags = std::make_shared<TokenizeFlags>();
  AddTextFlags(command, "TEXT", flags->input);
  AddModelFlag(command, kWhichModel, *flags->request.mutable_model());
  command->add_flag_function(
      "--begin-token", [flags](int64_t) { flags->request.set_begin_token(true); },
      "Put the begin token before the text");
  command->add_flag("--json", flags->json, "Print the answer as JSON");
  SetFooter(command,
            "  triptych tokenize --model shakespeare-mla \"To be, or not to be\"\n"
            "  triptych tokenize --begin-token --file prompt.txt");
  command->callback([&server, flags] { Tokenize(server, *flags); });
}

}  // namespace triptych::client
