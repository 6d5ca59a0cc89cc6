// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPENAPI_H_
#define BATON_ROUTER_OPENAPI_H_

namespace baton {

// openapi.json: the HTTP API for people and generators of clients. A test holds it to what HttpApi serves and reads.
extern const char kOpenApiDocument[];

}  // namespace baton

#endif  // BATON_ROUTER_OPENAPI_H_
