// SPDX-License-Identifier: Apache-2.0
// The status page over HTTP (civetweb, as prometheus-cpp has it): one file of HTML, and what it
// asks for as JSON. It shows and changes nothing.
//
//   GET /            the page
//   GET /open?code=  a session for a code of `hpctl open`, as a cookie; then the page
//   GET /uplot.js    /uplot.css    what draws the plots (third_party/uplot)
//   GET /api/jobs    /api/job?id=N    /api/events?id=N&after=SEQ    and those of PageAnswers
//
// Everything but /open wants a session (page_access.h). It listens on the loopback address unless
// told otherwise and does not encrypt: from another machine the way is a forwarded port of ssh.
// The Host of a request must be one that we have, so that no name of a stranger's can be pointed at
// us; an answer may not be framed, kept, or load anything from elsewhere. Requests, threads and the
// time for a request are bounded. Any thread; the destructor waits for requests in hand.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "controller/page/page_access.h"

struct mg_context;
struct mg_connection;

namespace hpctl {

class PageServer {
 public:
  // A JSON request, on a thread of the server. `query` as text of a parameter, "" = absent.
  struct Request {
    std::string path;  // "/api/jobs", ...
    std::string id;
    std::string after;
    std::string from = {};  // steps
    std::string to = {};
    std::string points = {};
    std::string rank = {};
    std::string lines = {};
  };
  using Answer = std::function<Result<std::string>(uint32_t uid, const Request& request)>;

  // `address` HOST:PORT; port 0 = any free one. kUnavailable: it is not ours, or in use.
  static Result<std::unique_ptr<PageServer>> open(const std::string& address, PageAccess& access,
                                                  Answer answer);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // "http://HOST:PORT"
  const std::string& url() const { return url_; }
  // Rises with every request of a session.
  uint64_t requests() const { return requests_; }

 private:
  PageServer(std::string host, PageAccess& access, Answer answer);
  static int on_request(mg_connection* connection);
  void serve(mg_connection* connection);
  void open_session(mg_connection* connection, const char* query);
  void send_page(mg_connection* connection) const;
  bool has_our_host(mg_connection* connection) const;
  std::string cookie_name() const;

  const std::string host_;
  PageAccess& access_;
  const Answer answer_;
  std::string url_;
  std::atomic<uint16_t> port_{0};  // requests may come before open() has returned
  std::atomic<uint64_t> requests_{0};
  mg_context* context_ = nullptr;
};

}  // namespace hpctl
