"""The scheduler: submits jobs at the due times of schedules."""
