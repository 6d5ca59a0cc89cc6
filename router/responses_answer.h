// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_RESPONSES_ANSWER_H_
#define BATON_ROUTER_RESPONSES_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "baton/v1/generation.pb.h"
#include "router/http_answer.h"
#include "router/json_fields.h"
#include "router/openai_request.h"
#include "router/openai_tools.h"

namespace baton {

// The answer of /v1/responses: a list of items, a message and function calls in the order in which they came. As events each item is
// added, grows, and is done; the first event has the answer as it begins, the last as it is. One thread.
class ResponsesAnswer final : public HttpAnswer {
 public:
  // `id` is without its prefix.
  ResponsesAnswer(const OpenAiRequest& request, std::string id, std::string model, int64_t created);

  std::string Events(int prompt, const v1::GenerateResponse& response) override;
  std::string LastEvents() override;
  std::string ErrorEvent(const absl::Status& status) override;
  void Add(int prompt, const v1::GenerateResponse& response) override;
  std::string Whole() override;

 private:
  struct Item {
    bool call = false;         // Else a message.
    std::string name;          // Of a call's function.
    std::string text;          // A call's arguments.
    Json logprobs = Json::array();
  };

  // Takes in a response; what of it is to be told goes to `events`, if there is one.
  void Take(const v1::GenerateResponse& response, std::string* events);
  void TakeDelta(const v1::ChoiceDelta& delta, std::string* events);
  // The item that text or arguments are added to: the last one, or a new one.
  Item& Open(bool call, const std::string& name, bool always_new, std::string* events);
  void CloseLast(std::string* events);
  void AddEvent(const char* type, Json members, std::string* events);
  // Members that say which item, and which part of it, an event is of.
  Json Place(size_t index) const;
  Json PartJson(const Item& item) const;
  Json ItemJson(size_t index, bool done) const;
  Json ResponseJson(bool done) const;
  bool incomplete() const { return finish_reason_ == "length"; }

  const Json repeated_;
  const std::string id_, model_;
  const int64_t created_;
  const bool named_call_;
  ContentReader content_;
  std::vector<Item> items_;
  bool begun_ = false;
  bool last_open_ = false;  // The last item may grow still.
  std::string finish_reason_;
  int64_t sequence_ = 0;  // Of the next event.
  Json usage_, timeline_;
};

}  // namespace baton

#endif  // BATON_ROUTER_RESPONSES_ANSWER_H_
