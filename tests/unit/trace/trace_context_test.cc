// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_context.h"

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr char kExample[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";  // The standard's own.

TEST(TraceContext, ReadsTheStandardsExampleAndWritesItBack) {
  const auto context = ParseTraceContext(kExample, "rojo=00f067aa0ba902b7");
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->TraceId(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(context->SpanId(), "b7ad6b7169203331");
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->state, "rojo=00f067aa0ba902b7");
  EXPECT_EQ(FormatTraceparent(*context), kExample);
}

TEST(TraceContext, AnythingMalformedIsNoContext) {
  for (const char* text : {
           "",
           "00",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",        // No flags.
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",      // One digit of them.
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",     // Upper case.
           "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",     // No digit.
           "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",     // Other dashes.
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",     // No trace.
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",     // No span.
           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",     // A version that will never be.
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",   // Version 00 ends there.
           "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",    // Later ones go on with a dash.
       }) {
    EXPECT_FALSE(ParseTraceContext(text).has_value()) << text;
  }
}

TEST(TraceContext, LaterVersionsAreReadAsFarAsTheyAreKnown) {
  const auto context = ParseTraceContext("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-what.will.be");
  ASSERT_TRUE(context.has_value());
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(FormatTraceparent(*context), kExample);
}

TEST(TraceContext, AStateThatIsTooLongIsDropped) {
  EXPECT_EQ(ParseTraceContext(kExample, std::string(512, 'a'))->state.size(), 512u);
  EXPECT_EQ(ParseTraceContext(kExample, std::string(513, 'a'))->state, "");
}

TEST(TraceContext, AStateThatIsNoHeaderIsDropped) {
  for (const char* state : {"a=\xc3\xa9", "a=\x7f", "a=1\nb: 2", "\x01"}) EXPECT_EQ(ParseTraceContext(kExample, state)->state, "") << state;
}

TEST(TraceContext, WhoKnowsTheSameNumbersKnowsTheSameSpan) {
  const TraceContext one = NewTrace(/*sampled=*/true), other = NewChild(one);
  const TraceContext shared = SharedSpan(one, {7, 8, 1});
  EXPECT_EQ(shared.span, SharedSpan(other, {7, 8, 1}).span);
  EXPECT_EQ(shared.TraceId(), one.TraceId());
  EXPECT_TRUE(shared.valid() && shared.sampled);
  EXPECT_NE(shared.span, one.span);
  for (const TraceContext& another : {SharedSpan(one, {7, 8, 2}), SharedSpan(one, {8, 7, 1}), SharedSpan(NewTrace(true), {7, 8, 1})}) {
    EXPECT_NE(shared.span, another.span);
  }
}

TEST(TraceContext, AChildIsAnotherSpanOfTheSameTrace) {
  const TraceContext parent = NewTrace(/*sampled=*/true);
  ASSERT_TRUE(parent.valid());
  const TraceContext child = NewChild(parent);
  EXPECT_EQ(child.TraceId(), parent.TraceId());
  EXPECT_NE(child.span, parent.span);
  EXPECT_TRUE(child.sampled);
  EXPECT_NE(NewTrace(true).TraceId(), parent.TraceId());
  EXPECT_FALSE(TraceContext().valid());
}

}  // namespace
}  // namespace baton
