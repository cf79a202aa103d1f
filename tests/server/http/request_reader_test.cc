// Tests of the HTTP request reader: framing, and requests that it rejects.
#include "server/http/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace triptych::server::request_reader_test {
namespace {

using Event = RequestReader::Event;

constexpr size_t kMaxHead = 16 << 10;
constexpr size_t kMaxBody = 1000;

const std::string kPost = "POST /a HTTP/1.1\r\nHost: b\r\n";
const std::string kChunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";

// A reader's results for bytes that arrive in pieces: targets and bodies of requests, and the
// status of an error.
struct Read {
  std::vector<std::string> requests;
  int status = 0;
};
Read ReadAll(const std::string& bytes, size_t step = 4096) {
  RequestReader reader(kMaxHead, kMaxBody);
  Read read;
  std::string target;
  for (size_t at = 0; at < bytes.size(); at += step) {
    reader.Append(std::string_view(bytes).substr(at, step));
    Event event = Event::kNothing;
    while ((event = reader.Next()) != Event::kNothing) {
      if (event == Event::kHead) target = std::string(reader.head().target());
      if (event == Event::kRequest) read.requests.push_back(target + " " + reader.TakeBody());
      if (event == Event::kError) {
        read.status = reader.error().status;
        return read;
      }
    }
  }
  return read;
}

TEST(RequestReaderTest, ReadsTheSameHoweverItIsCut) {
  const std::string text = kPost + "Content-Length: 3\r\n\r\nabc" +
                           "GET /c HTTP/1.1\r\nHost: b\r\n\r\n" + kChunked +
                           "3\r\nabc\r\nA ;x=\"y\";z\r\n0123456789\r\n0\r\nX: y\r\n\r\n" +
                           "GET /d HTTP/1.0\r\n\r\n" + kChunked + "00\r\n\r\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    const Read read = ReadAll(text, step);
    EXPECT_THAT(read.requests,
                testing::ElementsAre("/a abc", "/c ", "/a abc0123456789", "/d ", "/a "));
    EXPECT_EQ(read.status, 0);
  }
}

TEST(RequestReaderTest, SkipsEmptyLinesBeforeARequest) {
  const std::string text = "\r\n" + kPost + "Content-Length: 3\r\n\r\nabc\r\n\r\n" +
                           "GET /c HTTP/1.1\r\nHost: b\r\n\r\n\r\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    const Read read = ReadAll(text, step);
    EXPECT_THAT(read.requests, testing::ElementsAre("/a abc", "/c "));
    EXPECT_EQ(read.status, 0);
  }
  EXPECT_EQ(ReadAll("\rGET /c HTTP/1.1\r\nHost: b\r\n\r\n").status, 400);
}

TEST(RequestReaderTest, AHeadIsBoundedHoweverItComes) {
  // The request line is padded so that every read ends with a line.
  const std::string start =
      "GET /health" + std::string(4096 - 11 - 11 - 12, 'a') + " HTTP/1.1\r\nHost: ab\r\n";
  for (const std::string field : {"a:\r\n", "a:bc\r\n"}) {
    for (const size_t step : {size_t{1}, field.size(), size_t{4096}}) {
      std::string text = start;
      while (text.size() < 2 * kMaxHead) text += field;
      RequestReader reader(kMaxHead, kMaxBody);
      size_t at = 0;
      Event event = Event::kNothing;
      for (; event == Event::kNothing && at < text.size(); at += step) {
        reader.Append(std::string_view(text).substr(at, step));
        event = reader.Next();
      }
      ASSERT_EQ(event, Event::kError) << "after " << at << " bytes, " << step << " at a time";
      EXPECT_EQ(reader.error().status, 431);
      EXPECT_LE(at, kMaxHead + step);
    }
  }
  // The number of fields is limited too, because small fields take many times their text's memory.
  const auto with_fields = [](size_t count) {
    std::string text = "GET / HTTP/1.1\r\nHost: b\r\n";
    for (size_t i = 1; i < count; ++i) text += "a:\r\n";
    return text + "\r\n";
  };
  for (const size_t step : {size_t{1}, size_t{4}, size_t{4096}}) {
    EXPECT_EQ(ReadAll(with_fields(RequestReader::kMaxFields), step).requests.size(), 1);
    EXPECT_EQ(ReadAll(with_fields(RequestReader::kMaxFields + 1), step).status, 431);
  }
  std::string lines = start;
  while (lines.size() < kMaxHead) lines += "a: " + std::string(200, 'b') + "\r\n";
  for (const size_t step : {size_t{1}, size_t{205}, size_t{4096}}) {
    EXPECT_EQ(ReadAll(lines, step).status, 431);
  }
  const auto with_filler = [](size_t bytes) {
    const std::string front = "GET / HTTP/1.1\r\nHost: b\r\nX: ", back = "\r\n\r\n";
    return front + std::string(bytes - front.size() - back.size(), 'a') + back;
  };
  for (const size_t step : {size_t{1}, size_t{4096}}) {
    EXPECT_EQ(ReadAll(with_filler(kMaxHead), step).requests.size(), 1);
    EXPECT_EQ(ReadAll(with_filler(kMaxHead + 1), step).status, 431);
  }
}

TEST(RequestReaderTest, ChunksAndTrailersAreBounded) {
  const std::string line(RequestReader::kMaxLineBytes - 2, 'x');
  EXPECT_EQ(ReadAll(kChunked + "0;" + line + "\r\n\r\n").requests.size(), 1);
  // Bytes of an endless line above the limit are not kept.
  for (const std::string& endless :
       {"1;" + line + "x", "0;" + line + "x", "0\r\nX" + line + "xx"}) {
    EXPECT_EQ(ReadAll(kChunked + endless).status, 0);
    EXPECT_EQ(ReadAll(kChunked + endless + "x").status, 400);
  }
  std::string trailers = "0\r\n";
  while (trailers.size() < kMaxHead) trailers += "X: " + std::string(200, 'y') + "\r\n";
  EXPECT_EQ(ReadAll(kChunked + trailers).status, 431);
}

TEST(RequestReaderTest, ABodyIsBounded) {
  const std::string most(kMaxBody, 'a'), more = most + "a";
  const auto with_length = [](const std::string& body) {
    return kPost + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  EXPECT_EQ(ReadAll(with_length(most)).requests.size(), 1);
  EXPECT_EQ(ReadAll(with_length(more)).status, 413);
  const auto in_chunks = [](const std::string& body) {
    std::string text = kChunked;
    for (const char byte : body) text += "1\r\n" + std::string{byte} + "\r\n";
    return text + "0\r\n\r\n";
  };
  EXPECT_EQ(ReadAll(in_chunks(most)).requests.front(), "/a " + most);
  EXPECT_EQ(ReadAll(in_chunks(more)).status, 413);
  EXPECT_EQ(ReadAll(kChunked + "3e9\r\n").status, 413);
  EXPECT_EQ(ReadAll(kChunked + "ffffffffffffffff\r\n").status, 413);
  EXPECT_EQ(ReadAll(kChunked + "10000000000000000\r\n").status, 413);
}

TEST(RequestReaderTest, RefusesBrokenChunks) {
  for (const std::string broken :
       {"x\r\n", "\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", "1 \r\n", "1 x\r\n", "1\nab\r\n",
        "1\r\nab\r\n", "1;\nx\r\na\r\n", "1;\rx\r\na\r\n", "0\r\nX: y\rZ: z\r\n\r\n"}) {
    EXPECT_EQ(ReadAll(kChunked + broken).status, 400) << broken;
  }
}

TEST(RequestReaderTest, RefusesFramingThatOthersReadOtherwise) {
  const std::string http_1_0 = "POST /a HTTP/1.0\r\n";
  const struct {
    std::string head;
    int status;
  } faults[] = {
      {kPost + "Transfer-Encoding: xchunked\r\n\r\n", 501},
      {kPost + "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
      {kPost + "Transfer-Encoding: identity\r\n\r\n", 501},
      {kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {kPost + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
      {kPost + "Transfer-Encoding: \r\n\r\n", 501},
      {http_1_0 + "Transfer-Encoding: chunked\r\n\r\n", 400},
      {http_1_0 + "Transfer-Encoding: identity\r\n\r\n", 400},
      {kPost + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
      {kPost + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {kPost + "Content-Length: +1\r\n\r\n", 400},
      {kPost + "Content-Length : 1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400},
  };
  for (const auto& fault : faults) {
    const Read read = ReadAll(fault.head + "GET /next HTTP/1.1\r\nHost: b\r\n\r\n");
    EXPECT_EQ(read.status, fault.status) << fault.head;
    EXPECT_TRUE(read.requests.empty()) << fault.head;
  }
}

TEST(RequestReaderTest, KnowsWhetherARequestHasBegun) {
  RequestReader reader(kMaxHead, kMaxBody);
  EXPECT_FALSE(reader.begun());
  reader.Append(kPost);
  EXPECT_EQ(reader.Next(), Event::kNothing);
  EXPECT_TRUE(reader.begun());
  reader.Append("Content-Length: 1\r\n\r\n");
  EXPECT_EQ(reader.Next(), Event::kHead);
  EXPECT_TRUE(reader.has_body());
  EXPECT_EQ(reader.Next(), Event::kNothing);
  EXPECT_TRUE(reader.begun());
  reader.Append("a");
  EXPECT_EQ(reader.Next(), Event::kRequest);
  EXPECT_FALSE(reader.begun());
  EXPECT_EQ(reader.Next(), Event::kNothing);
}

}  // namespace
}  // namespace triptych::server::request_reader_test
