"""Stand-ins for the places besides Slack that are told of incidents: each keeps what people there would see."""
