"""May this be measured? Named checks of machine, plan and arms before anything starts."""
