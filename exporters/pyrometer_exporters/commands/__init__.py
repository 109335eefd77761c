"""What operators call: is a node fit, tests under load, the search for a bad node, the doctor, targets."""
