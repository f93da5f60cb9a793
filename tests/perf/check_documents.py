#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Compares what `weft perf` writes as JSON, CSV, text and plot with each other and with what must have been moved.

usage: check_documents.py WEFT
"""
import csv
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

RANKS, COMMS, THREADS, ITERATIONS = 3, 2, 2, 6
SVG = '{http://www.w3.org/2000/svg}'
SIZES = [1024, 4096, 16384]


def run(weft, folder):
    files = {kind: os.path.join(folder, f'results.{kind}') for kind in ('json', 'csv', 'svg')}
    command = [weft, 'perf', 'all_reduce', '-n', str(RANKS), '-b', '1K', '-e', '16K', '-f', '4', '--iters', str(ITERATIONS),
               '--comms', str(COMMS), '--threads', str(THREADS), '--histogram', '--json', files['json'], '--csv', files['csv'],
               '--plot', files['svg']]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    with open(files['json'], encoding='utf-8') as file:
        document = json.load(file)
    with open(files['csv'], encoding='utf-8', newline='') as file:
        return text, document, list(csv.DictReader(file)), xml.etree.ElementTree.parse(files['svg']).getroot()


def halves(document):
    for row in document['results']:
        for place in ('out_of_place', 'in_place'):
            yield row, place, row[place]


def check_half(row, half):
    latency = half['latency']
    # A ring of n sends 2(n-1) messages a rank while a chunk is one slice, and receives as many.
    messages = ITERATIONS * COMMS * RANKS * 2 * (RANKS - 1) * 2
    if half['messages'] != messages:
        yield f'{half["messages"]} messages instead of {messages}'
    if latency['count'] != ITERATIONS * RANKS * THREADS:
        yield f'{latency["count"]} latencies'
    if sum(octave['count'] for octave in latency['histogram']) != latency['count']:
        yield 'the histogram does not hold every latency'
    ordered = [latency[name] for name in ('min_us', 'p50_us', 'p90_us', 'p99_us', 'p999_us', 'max_us')]
    if ordered != sorted(ordered) or ordered[0] <= 0:
        yield f'latencies out of order: {ordered}'
    if not latency['min_us'] <= half['time_us'] <= latency['max_us']:
        yield f'a mean of {half["time_us"]} us outside {latency["min_us"]} to {latency["max_us"]}'
    busbw = row['bytes'] * COMMS / half['time_us'] / 1e3 * 2 * (RANKS - 1) / RANKS
    if abs(half['busbw_gbps'] - busbw) > 1e-6 * busbw:
        yield f'a bus bandwidth of {half["busbw_gbps"]} instead of {busbw}'
    if half['cpu_us_per_message'] <= 0 or half['wrong'] != 0:
        yield f'processor time {half["cpu_us_per_message"]}, {half["wrong"]} wrong'


def plot_complaints(document, plot):
    """Two panels with the sizes on both axes, a curve a place, a dot a size; dots rise as the values do."""
    words = [element.text for element in plot.iter(SVG + 'text')]
    for word in ('1K', '16K', 'float sum, in place', 'float sum, out of place'):
        if word not in words:
            yield f'the plot does not say {word}: {words}'
    curves = [element.get('points').split() for element in plot.iter(SVG + 'polyline')]
    if [len(curve) for curve in curves] != [len(SIZES)] * 4:
        yield f'the plot has curves of {[len(curve) for curve in curves]} points'
        return
    values = [[row[place]['busbw_gbps'] for row in document['results']] for place in ('out_of_place', 'in_place')]
    values += [[row[place]['latency']['p50_us'] for row in document['results']] for place in ('out_of_place', 'in_place')]
    for curve, expected in zip(curves, values):
        points = [tuple(map(float, point.split(','))) for point in curve]
        heights = [-y for _, y in points]
        if [x for x, _ in points] != sorted(x for x, _ in points):
            yield 'sizes do not go from left to right'
        for (a, b), (low, high) in zip(zip(heights, heights[1:]), zip(expected, expected[1:])):
            if abs(b - a) > 0.2 and (b > a) != (high > low):
                yield f'{low} to {high} goes the wrong way in the plot'


def alike(weft):
    """Curves of one look in a plot of many, and lines of the legend that no curve looks like."""
    done = subprocess.run([weft, 'perf', 'all_reduce', '-n', '2', '-b', '1K', '-e', '1K', '--iters', '2', '-d', 'all', '-o', 'all',
                           '--csv', '/dev/null', '--plot', '-', '--json', '/dev/null'], check=True, capture_output=True, text=True,
                          timeout=120)
    plot = xml.etree.ElementTree.fromstring(done.stdout[done.stdout.index('<svg'):])
    look = [(curve.get('stroke'), curve.get('stroke-dasharray')) for curve in plot.iter(SVG + 'polyline')]
    legend = [(line.get('stroke'), line.get('stroke-dasharray')) for line in plot.iter(SVG + 'line') if line.get('stroke-width') == '3']
    if len(legend) < 60 or len(set(legend)) != len(legend):
        yield f'{len(set(legend))} looks for {len(legend)} lines of the legend'
    if look != 2 * legend:
        yield 'the legend does not show the looks of the curves'


def hidden_conditions(weft):
    """What was measured, and is not said."""
    command = [weft, 'perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2', '--p2p-chunk', '64K']
    settings = {'WEFT_PROVIDER': 'fault(seed=1):ofi', 'WEFT_EAGER_MAX': '4096'}
    for more in ([], ['--json', '-']):
        text = subprocess.run(command + more, check=True, capture_output=True, text=True, timeout=120, env={**os.environ, **settings}).stdout
        for name, value in settings.items():
            if f'{name}={value}' not in text:
                yield f'{name} is not told: {text}'
    said = json.loads(text)['conditions']
    if not said['fabric'].startswith('fault:ofi:') or (said['device_number'], said['p2p_chunk_bytes']) != (0, 65536):
        yield f'the conditions do not tell the fabric: {said}'


def without_utf8(weft):
    """Values and file names are bytes, and a document with them is one."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(os.fsencode(folder), b'\xff.json')
        command = [weft, 'perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2', '--json', file]
        done = subprocess.run(command, check=False, capture_output=True, timeout=120, env={**os.environb, b'WEFT_HCA': b'^\xff'})
        if done.returncode != 0:
            yield f'a setting that is no UTF-8 ends the run with {done.returncode}: {done.stderr}'
            return
        with open(file, encoding='utf-8') as written:
            said = json.load(written)['conditions']
    if 'WEFT_HCA=^\ufffd' not in said['settings']:
        yield f'the conditions do not tell a setting that is no UTF-8: {said}'


def complaints(text, document, table, plot):
    yield from plot_complaints(document, plot)
    if [row['bytes'] for row in document['results']] != SIZES:
        yield 'not the sizes that were asked for'
    lines = list(halves(document))
    if len(table) != len(lines):
        yield f'{len(table)} lines of CSV for {len(lines)} results'
    for line, (row, place, half) in zip(table, lines):
        for complaint in check_half(row, half):
            yield f'{row["bytes"]} bytes, {place}: {complaint}'
        same = (line['place'] == place and int(line['bytes']) == row['bytes'] and int(line['messages']) == half['messages']
                and abs(float(line['time_us']) - half['time_us']) < 0.001
                and abs(float(line['p99_us']) - half['latency']['p99_us']) < 0.001)
        if not same:
            yield f'CSV and JSON differ: {line}'
        if f'{half["latency"]["p90_us"]:.2f}' not in text:
            yield f'the table does not show the percentile {half["latency"]["p90_us"]:.2f}'
    if '####' not in text:
        yield 'no histogram was printed'


def main(weft):
    with tempfile.TemporaryDirectory() as folder:
        wrong = list(complaints(*run(weft, folder))) + list(alike(weft)) + list(hidden_conditions(weft))
        wrong += list(without_utf8(weft))
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
