"""Network links, through sysfs."""
