// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "src/base/nearest.h"

namespace weft::plan {

namespace {

using Place = std::vector<double>;  // each between 0 and 1
using Loss = std::function<double(const Place&)>;

double predictedOf(const Scenario& scenario, const Measured& point, const Draws& draws) {
  if (scenario.job.isOperation()) return predictOperation(scenario, point.gpus, point.bytes).busGBps;
  return predict(scenario, point.gpus, draws).throughput;
}

double valueAt(const Number& number, double share) {
  if (!number.logarithmic) return number.least + share * (number.most - number.least);
  return number.least * std::pow(number.most / number.least, share);
}

Scenario placed(const Scenario& scenario, const std::vector<const Number*>& freed, const Place& place) {
  Scenario made = scenario;
  for (size_t i = 0; i < freed.size(); ++i) freed[i]->set(&made, valueAt(*freed[i], place[i]));
  return made;
}

// The best corner of a grid over all free numbers, so that the simplex does not begin in the wrong valley.
Place bestOfGrid(size_t dimensions, const Loss& loss) {
  constexpr size_t kSteps = 12;
  size_t all = 1;
  for (size_t i = 0; i < dimensions; ++i) all *= kSteps;
  Place best;
  double least = HUGE_VAL;
  for (size_t number = 0; number < all; ++number) {
    Place place;
    for (size_t i = 0, rest = number; i < dimensions; ++i, rest /= kSteps)
      place.push_back((static_cast<double>(rest % kSteps) + 0.5) / kSteps);
    if (const double here = loss(place); here < least) {
      least = here;
      best = place;
    }
  }
  return best;
}

struct Corner {
  Place place;
  double loss;
};

Corner cornerAt(const Loss& loss, Place place) {
  for (double& share : place) share = std::clamp(share, 0.0, 1.0);
  const double value = loss(place);
  return {std::move(place), value};
}

// From `from` through `over` and `factor` times as far beyond it.
Place beyond(const Place& from, const Place& over, double factor) {
  Place place(from.size());
  for (size_t i = 0; i < from.size(); ++i) place[i] = over[i] + factor * (over[i] - from[i]);
  return place;
}

Place centreOf(const std::vector<Corner>& corners) {  // of all but the last
  Place centre(corners.front().place.size());
  for (size_t c = 0; c + 1 < corners.size(); ++c)
    for (size_t i = 0; i < centre.size(); ++i)
      centre[i] += corners[c].place[i] / static_cast<double>(corners.size() - 1);
  return centre;
}

// A move of the simplex, whose corners are sorted.
void moveSimplex(std::vector<Corner>* corners, const Loss& loss) {
  Corner& worst = corners->back();
  const Place centre = centreOf(*corners);
  const Corner mirrored = cornerAt(loss, beyond(worst.place, centre, 1));
  if (mirrored.loss < corners->front().loss) {
    const Corner farther = cornerAt(loss, beyond(worst.place, centre, 2));
    worst = farther.loss < mirrored.loss ? farther : mirrored;
    return;
  }
  if (mirrored.loss < (*corners)[corners->size() - 2].loss) {
    worst = mirrored;
    return;
  }
  if (const Corner nearer = cornerAt(loss, beyond(worst.place, centre, -0.5)); nearer.loss < worst.loss) {
    worst = nearer;
    return;
  }
  const Place best = corners->front().place;
  for (size_t c = 1; c < corners->size(); ++c)
    (*corners)[c] = cornerAt(loss, beyond((*corners)[c].place, best, -0.5));
}

Place bestOfSimplex(const Place& start, const Loss& loss) {
  constexpr int kMoves = 400;
  std::vector<Corner> corners{cornerAt(loss, start)};
  for (size_t i = 0; i < start.size(); ++i) {
    Place place = start;
    place[i] += place[i] < 0.5 ? 0.05 : -0.05;
    corners.push_back(cornerAt(loss, place));
  }
  const auto better = [](const Corner& a, const Corner& b) { return a.loss < b.loss; };
  for (int move = 0; move < kMoves; ++move) {
    std::stable_sort(corners.begin(), corners.end(), better);
    moveSimplex(&corners, loss);
  }
  return std::min_element(corners.begin(), corners.end(), better)->place;
}

Error unfit(const Job& job, const std::string& what) {
  return {Code::config, "fitting a job", job.name + ": " + what};
}

Result<std::vector<const Number*>> freedOf(const Job& job) {
  std::vector<std::string> known;
  for (const Number& number : numbers()) known.emplace_back(number.name);
  std::vector<const Number*> freed;
  for (const std::string& name : job.freeNumbers) {
    freed.push_back(numberNamed(name));
    if (!freed.back())
      return unfit(
          job, "measured.free: '" + name + "' is no number of a job or a cluster" + nearestHint(name, known));
  }
  if (freed.empty() || freed.size() > 3)
    return unfit(job, "measured.free: must name one, two or three numbers");
  return freed;
}

// The square root of the mean square of what a sum of so many squares is.
double rootOf(double squares, double count) {
  return count > 0 ? std::sqrt(squares / count) : 0;
}

}  // namespace

Comparison compare(const Scenario& scenario, double fitBelow, const Draws& draws) {
  Comparison made;
  double squares[2] = {};
  double counts[2] = {};
  for (const Measured& point : scenario.job.measured) {
    const Compared one{point, predictedOf(scenario, point, draws), point.gpus < fitBelow};
    made.points.push_back(one);
    if (point.gpus < 2) continue;
    squares[one.fitted ? 0 : 1] += one.error() * one.error();
    counts[one.fitted ? 0 : 1] += 1;
    made.worst = std::max(made.worst, std::abs(one.error()));
  }
  made.rmsFitted = rootOf(squares[0], counts[0]);
  made.rmsHeldOut = rootOf(squares[1], counts[1]);
  made.rms = rootOf(squares[0] + squares[1], counts[0] + counts[1]);
  return made;
}

Result<Scenario> fitted(const Scenario& scenario, double below, const Draws& draws) {
  TRY(const std::vector<const Number*> freed, freedOf(scenario.job));
  std::vector<Measured> seen;
  for (const Measured& point : scenario.job.measured)
    if (point.gpus < below && point.gpus > 1) seen.push_back(point);
  if (seen.size() <= freed.size())
    return unfit(scenario.job,
                 fmt::format("measured.points: {} below {} GPUs are too few for {} free numbers", seen.size(),
                             below, freed.size()));
  const Loss loss = [&](const Place& place) {
    const Scenario tried = placed(scenario, freed, place);
    double squares = 0;
    for (const Measured& point : seen) {
      const double error = predictedOf(tried, point, draws) / point.value - 1;
      squares += error * error;
    }
    return squares;
  };
  return placed(scenario, freed, bestOfSimplex(bestOfGrid(freed.size(), loss), loss));
}

}  // namespace weft::plan
