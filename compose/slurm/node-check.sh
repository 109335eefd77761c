#!/bin/sh
# What the node exporter of this node says against giving it a job. One line of reasons and status 1 where there are any;
# status 0 where there are none, and also where the exporter does not answer: monitoring that is down takes no node away.
# What is wrong is asked for twice, a moment apart: one answer of a GPU that came late takes no node away either.
#
# Settings, in /etc/pyrometer/slurm.conf or the environment:
#   PYROMETER_METRICS=http://127.0.0.1:9935/metrics
#   PYROMETER_IGNORE=        checks that don't count, an extended regular expression such as  link_.*|disk
#   PYROMETER_SECONDS=5      patience
#   PYROMETER_PAUSE=2        seconds between the two looks
set -u
[ -r "${PYROMETER_CONF:=/etc/pyrometer/slurm.conf}" ] && . "$PYROMETER_CONF"

ask() {
    metrics=$(curl --silent --show-error --fail --max-time "${PYROMETER_SECONDS:-5}" \
        "${PYROMETER_METRICS:-http://127.0.0.1:9935/metrics}" 2>&1) || {
        echo "pyrometer: the node exporter does not answer, nothing was checked: $metrics" >&2
        exit 0
    }
    reasons=$(printf '%s\n' "$metrics" | awk -v ignore="${PYROMETER_IGNORE:-}" "$judge")
}

judge='
    function label(name,   found) {
        if (!match($0, "[{,]" name "=\"[^\"]*\"")) return ""
        found = substr($0, RSTART, RLENGTH)
        sub(/^[^"]*"/, "", found); sub(/"$/, "", found)
        return found
    }
    function say(check, text) {
        if (ignore != "" && check ~ ("^(" ignore ")$")) return
        if (!(text in said)) reasons = reasons (reasons == "" ? "" : "; ") text
        said[text] = 1
    }
    /^#/ { next }
    /^pyrometer_check_ok[{].* 0(\.0)?( |$)/ { say(label("check"), "check " label("check") " failed") }
    /^pyrometer_gpu_up[{].* 0(\.0)?( |$)/ { say("gpu_up", "GPU " label("gpu") " does not answer") }
    /^pyrometer_gpu_recovery_action[{]/ && $2 > 0 { say("gpu_recovery", "GPU " label("gpu") " has to be reset") }
    /^pyrometer_down_reason_info[{]/ && label("collector") == "gpu" && label("part") == "nvml" { driver = label("reason") }
    /^pyrometer_gpus_present[{]/ { present[label("source")] = $2 + 0 }
    /^pyrometer_nic_link_up[{].* 0(\.0)?( |$)/ { down[label("device") "/" label("port")] = 1 }
    /^pyrometer_nic_expected_up[{].* 1(\.0)?( |$)/ { expected[label("device") "/" label("port")] = 1 }
    END {
        for (source in present) if (present[source] > most) most = present[source]
        if ("nvml" in present && present["nvml"] < most)
            say("gpus_present", (most - present["nvml"]) " of " most " GPUs are missing")
        # Where there are no GPUs, a driver that is missing says nothing; nor does one that somebody asked us to leave.
        missing = driver == "no_driver" || driver == "driver_not_loaded"
        if (driver != "" && driver !~ /^releas/ && !("nvml" in present) && (most > 0 || !missing))
            say("gpu_driver", "the NVIDIA driver can not be used: " driver)
        for (port in down) if (port in expected) say("nic_link", "link " port " is down")
        print reasons
    }'

ask
[ -z "$reasons" ] && exit 0
sleep "${PYROMETER_PAUSE:-2}"
ask
[ -z "$reasons" ] && exit 0
echo "$reasons"
exit 1
