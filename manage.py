"""Django's command line: `python manage.py migrate`, `dispatch`, `base_model_add`, …"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.config.django")
    execute_from_command_line(sys.argv)
