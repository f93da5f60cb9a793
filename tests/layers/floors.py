# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The floors of src/core: each unit (circles.py) is on one of them, and includes only what is on its own floor or below. A floor knows
nothing of those above: what has to go up is a value that it leaves, or a call of an interface that it declares itself."""
import circles

ROOM = 'src/core/'
# From below. An engine's sources that know comms stand on the comms' floor: they are the owner's side of them.
FLOORS = {
    # What is sent, counted and compared: no lane, no queue.
    'values': '''budget checksums comm_api comm_report comm_table connect_hold cts_ring eager_receiver early_messages ending ending_log
        engine_options gathering growing_ring life lock_order messages path_owner patience pending request sequence standing stripe tag_table
        wait_watch window wire work_context''',
    # The way to one peer's engine: lanes, eager slots, keys of memory, fail-over.
    'path': '''eager_sender engine_parts failover flush_lanes lane lane_set memory_book peering peering_eager posting same_host''',
    # Who may enter, the poll pass, the tables of peerings and comms.
    'engine': 'engine engine_entry engine_idle',
    # Sends matched to receives.
    'comms': '''comm engine_comms engine_lack engine_messages engine_poll recv_comm recv_comm_control recv_comm_direct recv_comm_flush recv_comm_placed recv_comm_waiting
        send_comm send_comm_control send_comm_direct send_comm_placed send_comm_sums state_text testing''',
    # A process: its engines, its peers, and how two ends of a connection meet.
    'net': 'connections meeting merging net router runtime state_report',
}


def floor_of(floors=None):
    """{unit without its room: the floor's number, from 0}."""
    return {unit: number for number, units in enumerate((floors or FLOORS).values()) for unit in units.split()}


def check(texts, floors=None):
    """Complaints about units of the room that are on no floor, or that include what is above; `texts` is {path: text}."""
    names, numbers = list(floors or FLOORS), floor_of(floors)
    inside = {path: text for path, text in texts.items() if path.startswith(ROOM) and path.endswith(('.h', '.cc'))}
    for unit, included in sorted(circles.graph(inside).items()):
        unit = unit.removeprefix(ROOM)
        if unit not in numbers:
            yield f'{ROOM}{unit}: is on no floor of tests/layers/floors.py'
            continue
        for other in sorted(name.removeprefix(ROOM) for name in included):
            if numbers.get(other, 0) > numbers[unit]:
                yield f'{ROOM}{unit}: is on the floor "{names[numbers[unit]]}" and includes {other} of "{names[numbers[other]]}" above it'
