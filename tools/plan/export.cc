// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/export.h"

#include <algorithm>
#include <map>

namespace weft::plan {

namespace {

using Kind = Activity::Kind;

Activity computing(const std::string& name, double us, std::vector<size_t> after) {
  Activity made;
  made.name = name;
  made.us = us;
  made.after = std::move(after);
  return made;
}

Activity reducing(const std::string& name, Collective collective, double bytes, std::vector<size_t> after) {
  Activity made;
  made.kind = Kind::collective;
  made.name = name;
  made.collective = collective;
  made.bytes = bytes;
  made.after = std::move(after);
  return made;
}

// Collects activities; each knows the place of the one before it of its kind.
class List {
 public:
  size_t add(Activity activity) {
    made_.push_back(std::move(activity));
    return made_.size() - 1;
  }
  std::vector<Activity> take() { return std::move(made_); }

 private:
  std::vector<Activity> made_;
};

std::vector<Activity> bucketActivities(const Job& job) {
  List list;
  size_t compute = list.add(computing("forward", job.forwardUs, {}));
  std::vector<size_t> last;  // the bucket before
  double done = 0;
  for (size_t i = 0; i < job.buckets.size(); ++i) {
    const Bucket& bucket = job.buckets[i];
    const double until = job.overlap == Overlap::buckets ? bucket.ready : 1;
    const std::string number = std::to_string(i);
    if (until > done)
      compute = list.add(computing("backward " + number, job.backwardUs * (until - done), {compute}));
    done = std::max(done, until);
    std::vector<size_t> after{compute};
    after.insert(after.end(), last.begin(), last.end());
    last = {list.add(reducing("bucket " + number, job.collective, bucket.bytes, after))};
  }
  if (done < 1) compute = list.add(computing("backward rest", job.backwardUs * (1 - done), {compute}));
  last.push_back(compute);
  list.add(computing("optimizer", job.optimizerUs, last));
  return list.take();
}

std::vector<Activity> shardedActivities(const Job& job) {
  const Sharding& sharding = *job.sharded;
  const double bytes = sharding.parameters * sharding.bytesPerElement / sharding.layers;
  const auto layers = static_cast<size_t>(sharding.layers);
  const auto ahead = static_cast<size_t>(sharding.prefetch);
  List list;
  std::vector<size_t> computed;  // the computing of each layer, forward and then backward
  std::vector<size_t> ends;
  for (size_t pass = 0; pass < 2; ++pass) {
    const double us = (pass == 0 ? job.forwardUs : job.backwardUs) / sharding.layers;
    for (size_t layer = 0; layer < layers; ++layer) {
      const std::string name = (pass == 0 ? "forward " : "backward ") + std::to_string(layer);
      // A gather leaves when the computing that is `ahead` layers before its own begins.
      std::vector<size_t> early;
      if (computed.size() > ahead) early.push_back(computed[computed.size() - 1 - ahead]);
      std::vector<size_t> after{list.add(reducing("gather " + name, Collective::allGather, bytes, early))};
      if (!computed.empty()) after.push_back(computed.back());
      computed.push_back(list.add(computing(name, us, after)));
      if (pass == 1)
        ends.push_back(
            list.add(reducing("scatter " + name, Collective::reduceScatter, bytes, {computed.back()})));
    }
  }
  list.add(computing("optimizer", job.optimizerUs, ends));
  return list.take();
}

// The two ranks of each connection, the lower one first.
using Ends = std::map<uint64_t, std::pair<size_t, size_t>>;

Error unpaired(const std::string& path, const std::string& what) {
  return {Code::config, "exporting traces",
          path + ": " + what + "; give the traces of all ranks of one job, each once"};
}

Result<Ends> endsOf(const std::string& path, const std::vector<RankTraffic>& ranks) {
  std::map<uint64_t, std::vector<size_t>> seen;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Message& message : ranks[rank].messages) {
      std::vector<size_t>& of = seen[message.connection];
      if (of.empty() || of.back() != rank) of.push_back(rank);
    }
  Ends ends;
  for (const auto& [connection, of] : seen) {
    const std::string first = "trace " + std::to_string(of.front());
    if (of.size() == 1) return unpaired(path, first + " has messages of a connection to no other trace here");
    if (of.size() > 2)
      return unpaired(path,
                      first + " has a connection to " + std::to_string(of.size() - 1) + " others at once");
    ends[connection] = {of[0], of[1]};
  }
  return ends;
}

// A connection's number among those of its two ranks, the same on both as both know the same handles, and a
// message's within it.
class Tags {
 public:
  explicit Tags(const Ends& ends) {
    std::map<std::pair<size_t, size_t>, size_t> numbers;
    for (const auto& [connection, ranks] : ends) next_[connection] = kMostMessages * numbers[ranks]++;
  }
  size_t of(const Message& message) { return next_[message.connection]++; }

 private:
  static constexpr size_t kMostMessages = 1000000;  // of a connection
  std::map<uint64_t, size_t> next_;
};

// Messages wait for the pause before them, a pause for the messages before it.
std::vector<Activity> messageActivities(const std::vector<Message>& messages, size_t rank, const Ends& ends) {
  Tags tags(ends);
  List list;
  double clockUs = 0;
  std::vector<size_t> pause;
  std::vector<size_t> burst;
  for (const Message& message : messages) {
    if (message.postUs > clockUs + kPauseUs) {
      burst.insert(burst.end(), pause.begin(), pause.end());
      pause = {list.add(computing("pause", message.postUs - clockUs, burst))};
      burst.clear();
    }
    Activity activity;
    activity.kind = message.sent ? Kind::send : Kind::receive;
    activity.name = message.sent ? "send" : "receive";
    activity.bytes = message.bytes;
    const auto& [low, high] = ends.at(message.connection);
    activity.peer = low == rank ? high : low;
    activity.tag = tags.of(message);
    activity.after = pause;
    burst.push_back(list.add(std::move(activity)));
    clockUs = std::max(clockUs, message.doneUs);
  }
  return list.take();
}

// The messages of one round: to the next rank and from the one before, each after the round before it.
std::vector<size_t> ringRoundOf(std::vector<Activity>* list, size_t rank, size_t ranks, double bytes,
                                size_t tag, const std::vector<size_t>& after) {
  Activity send;
  send.kind = Kind::send;
  send.name = "send";
  send.bytes = bytes;
  send.peer = (rank + 1) % ranks;
  send.tag = tag;
  send.after = after;
  Activity receive = send;
  receive.kind = Kind::receive;
  receive.name = "receive";
  receive.peer = (rank + ranks - 1) % ranks;
  list->push_back(send);
  list->push_back(receive);
  return {list->size() - 2, list->size() - 1};
}

}  // namespace

std::vector<Activity> activitiesOf(const Job& job) {
  if (job.sharded) return shardedActivities(job);
  if (!job.isOperation()) return bucketActivities(job);
  List list;
  std::vector<size_t> last;
  for (const double bytes : job.operationBytes)
    last = {list.add(reducing(nameOf(job.collective), job.collective, bytes, last))};
  return list.take();
}

Result<std::vector<std::vector<Activity>>> activitiesOf(const std::string& path,
                                                        const std::vector<RankTraffic>& ranks) {
  if (ranks.size() < 2) return unpaired(path, "is the trace of one rank");
  TRY(const Ends ends, endsOf(path, ranks));
  std::vector<std::vector<Activity>> made;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    made.push_back(messageActivities(ranks[rank].messages, rank, ends));
  return made;
}

std::vector<std::vector<Activity>> asMessages(const std::vector<Activity>& activities, size_t ranks) {
  std::vector<std::vector<Activity>> made(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::vector<size_t>> ends;  // of each activity, what it has become
    size_t tag = 0;
    for (const Activity& activity : activities) {
      std::vector<size_t> after;
      for (const size_t before : activity.after)
        after.insert(after.end(), ends[before].begin(), ends[before].end());
      if (activity.kind != Kind::collective) {
        made[rank].push_back(activity);
        made[rank].back().after = after;
        ends.push_back({made[rank].size() - 1});
        continue;
      }
      const size_t rounds = (activity.collective == Collective::allReduce ? 2 : 1) * (ranks - 1);
      for (size_t round = 0; round < rounds; ++round)
        after =
            ringRoundOf(&made[rank], rank, ranks, activity.bytes / static_cast<double>(ranks), tag++, after);
      ends.push_back(after);
    }
  }
  return made;
}

}  // namespace weft::plan
