# Writes the C++ source OUTPUT, which defines triptych::server::kPageHtml as the bytes of the file PAGE.
file(READ ${PAGE} bytes HEX)
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes ${bytes})
file(WRITE ${OUTPUT} "#include \"server/http/page.h\"

namespace triptych::server {
namespace {

constexpr char kBytes[] = {${bytes}};

}  // namespace

const std::string_view kPageHtml(kBytes, sizeof(kBytes));

}  // namespace triptych::server
")
