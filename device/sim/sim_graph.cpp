#include "device/sim/sim_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/files/output_file.hpp"
#include "core/files/output_stream.hpp"
#include "core/trace_log.hpp"
#include "device/drivers/launch_blocking.hpp"
#include "device/sim/devices/sim_error.hpp"
#include "device/sim/sim_driver.hpp"

namespace gantry::sim {
namespace {

const char* kind_of(const GraphNode& node) {
  if (node.event != nullptr) return node.is_wait ? "wait" : "record";
  return node.is_condition ? "condition" : "task";
}

}  // namespace

GraphPlan::GraphPlan(std::vector<GraphNode> nodes, const SimStream& origin)
    : nodes_(std::move(nodes)), branches_(1), branch_streams_{&origin} {
  divide();
}

void GraphPlan::divide() {
  std::vector<std::size_t> branch_of(nodes_.size());
  std::vector<bool> is_awaited(nodes_.size(), false);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto known = std::ranges::find(branch_streams_, nodes_[i].stream);
    if (known == branch_streams_.end()) {
      branches_.emplace_back();
      known = branch_streams_.insert(known, nodes_[i].stream);
    }
    branch_of[i] = static_cast<std::size_t>(known - branch_streams_.begin());
    branches_[branch_of[i]].push_back(i);
    for (const std::size_t before : nodes_[i].after) {
      if (branch_of[before] != branch_of[i]) is_awaited[before] = true;
    }
  }
  errors_.resize(branches_.size());

  // The first section has no nodes: the other branches begin behind it.
  sections_.push_back({.after = {}, .is_awaited = branches_.size() > 1});
  std::vector<std::size_t> section_of(nodes_.size());
  std::vector<std::size_t> open(branches_.size(), 0);  // a branch's section that may grow; 0: none
  std::vector<std::size_t> positions(branches_.size(), 0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::size_t branch = branch_of[i];
    NodeList after;
    for (const std::size_t before : nodes_[i].after) {
      if (branch_of[before] != branch) after.push_back(section_of[before]);
    }
    const std::size_t position = positions[branch]++;
    if (position == 0 && branch != 0 && after.empty()) after.push_back(0);
    const bool is_event = nodes_[i].event != nullptr;
    if (open[branch] == 0 || !after.empty() || is_event) {
      open[branch] = sections_.size();
      sections_.push_back(
          {.branch = branch, .first = position, .last = position, .after = std::move(after)});
    }
    GraphSection& section = sections_[open[branch]];
    section.last = position + 1;
    section.is_event = is_event;
    section.waits = std::max(section.waits, nodes_[i].waits);
    section_of[i] = open[branch];
    waits_ = std::max(waits_, nodes_[i].waits);
    if (is_awaited[i]) {
      section.is_awaited = true;
      open[branch] = 0;
    }
    if (is_event) open[branch] = 0;
  }
  // The end, on the first branch, waits for the last section of every other one.
  GraphSection end{.first = branches_[0].size(), .last = branches_[0].size(), .after = {}};
  for (std::size_t branch = 1; branch < branches_.size(); ++branch) {
    const std::size_t last = section_of[branches_[branch].back()];
    sections_[last].is_awaited = true;
    end.after.push_back(last);
  }
  end.is_awaited = true;
  sections_.push_back(std::move(end));
}

std::vector<int> GraphPlan::side_devices() const {
  std::vector<int> devices;
  for (std::size_t i = 1; i < branch_streams_.size(); ++i) {
    devices.push_back(branch_streams_[i]->device());
  }
  return devices;
}

bool GraphPlan::has_shape_of(const GraphPlan& other) const {
  return branches_ == other.branches_ && side_devices() == other.side_devices() &&
         std::ranges::equal(nodes_, other.nodes_, [](const GraphNode& a, const GraphNode& b) {
           return a.after == b.after && a.waits == b.waits && a.is_wait == b.is_wait &&
                  (a.event == nullptr) == (b.event == nullptr);
         });
}

bool GraphPlan::has_conditions() const {
  return std::ranges::any_of(nodes_, &GraphNode::is_condition);
}

bool GraphPlan::has_events() const {
  return std::ranges::any_of(nodes_, [](const GraphNode& node) { return node.event != nullptr; });
}

// Nodes behind an error of their branch do not run. The end rethrows the first error, on the stream
// of the launch. If that stream has failed before, it drops the beginning, and no branch does
// anything.
void GraphPlan::run(const GraphSection& section) {
  if (&section == &sections_.front()) is_running_ = true;
  if (!is_running_) return;
  std::exception_ptr& error = errors_[section.branch];
  for (std::size_t i = section.first; i < section.last && error == nullptr; ++i) {
    try {
      nodes_[branches_[section.branch][i]].task();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (&section != &sections_.back()) return;
  is_running_ = false;
  std::exception_ptr first;
  for (std::exception_ptr& of_branch : errors_) {
    const std::exception_ptr taken = std::exchange(of_branch, nullptr);
    if (first == nullptr) first = taken;
  }
  if (first != nullptr) std::rethrow_exception(first);
}

std::uint64_t GraphPlan::submit(SimStream& origin, std::span<SimStream* const> sides,
                                const SubmitEvent& submit_event) {
  const trace::Submission launch = trace::submit_now();
  if (branches_.size() == 1 && !has_events()) {
    return origin.submit(
        [this, launch] {
          const trace::SubmittedTogether scope(launch);
          for (const GraphNode& node : nodes_) node.task();
        },
        {.mark = true, .waits = waits_});
  }
  const auto stream_of = [&](const GraphSection& section) -> SimStream& {
    return section.branch == 0 ? origin : *sides[section.branch - 1];
  };
  std::vector<std::uint64_t> tickets(sections_.size());
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    const GraphSection& section = sections_[i];
    SimStream& stream = stream_of(section);
    for (const std::size_t before : section.after) {
      stream.submit([] {}, {.always = true,
                            .waits = waits_,
                            .after = {&stream_of(sections_[before]), tickets[before]}});
    }
    if (section.is_event) {
      tickets[i] = submit_event(nodes_[branches_[section.branch][section.first]], stream);
      continue;
    }
    tickets[i] = stream.submit(
        [this, &section, launch] {
          const trace::SubmittedTogether scope(launch);
          run(section);
        },
        {.mark = section.is_awaited, .waits = section.waits});
  }
  return tickets.back();
}

std::string GraphPlan::describe() const {
  std::string text = "digraph captured {\n  node [shape=box];\n";
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    text += fmt::format("  n{} [label=\"{} {}\\n{}\"];\n", i, kind_of(nodes_[i]), i,
                        nodes_[i].stream->name());
    for (const std::size_t before : nodes_[i].after) {
      text += fmt::format("  n{} -> n{};\n", before, i);
    }
  }
  return text + "}\n";
}

SimGraph& SimDriver::graph_of(NativeGraph graph, std::string_view doing) const {
  if (!captures_.contains(graph)) fail(kInvalidValue, doing, -1, "there is no such graph");
  return *static_cast<SimGraph*>(graph);
}

NativeGraph SimDriver::end_capture(NativeStream stream) {
  std::unique_ptr<SimGraph> graph = captures_.end(stream_of(stream, "ending a capture"));
  for (const int device : graph->plan->side_devices()) {
    graph->sides.push_back(&devices_[static_cast<std::size_t>(device)]->create_stream());
  }
  captures_.add(graph.get());
  return graph.release();
}

void SimDriver::launch_graph(NativeGraph graph, NativeStream stream) {
  SimStream& s = stream_of(stream, "launching a graph");
  SimGraph& g = graph_of(graph, "launching a graph on " + s.name());
  for (const GraphNode& node : g.plan->nodes()) {
    if (node.event != nullptr) {
      static_cast<void>(event_of(node.event, "launching a graph on " + s.name()));
    }
  }
  if (captures_.append(s, g)) return;
  // Launches of one graph do not overlap, whatever their streams.
  std::unique_lock lock(g.mutex);
  if (g.last_stream != nullptr && g.last_stream != &s) {
    s.submit(
        [] {},
        {.always = true, .waits = g.last_stream->waits(), .after = {g.last_stream, g.last_ticket}});
  }
  const bool blocks = launch_blocks(s, g.plan->waits());
  const auto submit_event = [](const GraphNode& node, SimStream& stream) {
    SimEvent& event = *static_cast<SimEvent*>(node.event);
    return node.is_wait ? submit_wait(event, stream) : submit_record(event, stream);
  };
  const std::uint64_t ticket = g.last_ticket = g.plan->submit(s, g.sides, submit_event);
  g.last_stream = &s;
  lock.unlock();
  if (!blocks) return;
  try {
    finish(s, ticket);
  } catch (...) {
    rethrow_with_call_place();
  }
}

bool SimDriver::update_graph(NativeGraph graph, NativeGraph source) {
  SimGraph& g = graph_of(graph, "updating a graph");
  const SimGraph& from = graph_of(source, "updating a graph from another one");
  if (!g.plan->has_shape_of(*from.plan)) return false;
  if (g.plan->has_conditions() || from.plan->has_conditions()) return false;
  auto plan = std::make_unique<GraphPlan>(*from.plan);
  const std::lock_guard lock(g.mutex);
  plan.swap(g.plan);
  UserObjects kept = std::exchange(g.kept, from.kept);
  if (g.last_stream == nullptr) return true;
  // Launches in flight still need the old tasks.
  auto* old = new std::pair(std::move(plan), std::move(kept));
  g.last_stream->submit([old] { delete old; }, {.always = true});
  return true;
}

void SimDriver::dump_graph(NativeGraph graph, const std::string& path) {
  const SimGraph& g = graph_of(graph, "writing a graph");
  const auto fail_writing = [&](const std::string& why) {
    fail(kOperatingSystem, fmt::format("writing a graph to '{}'", path), -1, why);
  };
  OutputFile opened = open_output(path);
  if (!opened.ok()) fail_writing(opened.problem);
  OutputStream file(std::move(opened.file));
  file << g.plan->describe();
  if (const int code = file.close(); code != 0) fail_writing(std::strerror(code));
}

void SimDriver::destroy_graph(NativeGraph graph) noexcept {
  auto* g = static_cast<SimGraph*>(graph);
  if (!captures_.remove(g)) return;
  for (SimStream* side : g->sides) {
    devices_[static_cast<std::size_t>(side->device())]->retire_stream(side);
  }
  // A launch in flight still needs the tasks.
  if (g->last_stream != nullptr) {
    g->last_stream->submit([g] { delete g; }, {.always = true});
  } else {
    delete g;
  }
}

}  // namespace gantry::sim
